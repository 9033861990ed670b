"""A watch as a stream on a runner: files are there once, as they are in the end, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline.runners.flink import flink_defaults
from pipeline.watching.ticks import EmitTicks
from support.arriving import Dropper, check_all_is_there_once, is_complete, lines, snapshot_of, wait_until, watch
from support.flink import Cluster, install_flink, running_cluster
from support.programs import PRISM, go_program, why_no_program

IS_SLOW = "TEST_SLOW" in os.environ
# How many files arrive within how many seconds.
FILES, SECONDS = (1_000, 600) if IS_SLOW else (40, 20)


@pytest.fixture(scope="module")
def on_prism() -> list[str]:
    if (program := go_program(PRISM)) is None:
        pytest.skip(why_no_program(PRISM))
    return ["--runner=PrismRunner", f"--prism_location={program}"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    install_flink()
    folder, taskmanagers = tmp_path_factory.mktemp("flink"), 4 if IS_SLOW else 3
    # As the README of deploy/flink says for streams: the restarts of a long run are not counted.
    restarts = "restart-strategy.type=exponential-delay", "restart-strategy.exponential-delay.initial-backoff=4 s"
    with running_cluster(folder, taskmanagers, *restarts) as cluster:
        yield cluster


def stop(process: subprocess.Popen[bytes], log: Path, summary: Path) -> None:
    """End a watch, and show what it did."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    told = json.loads(summary.read_text())
    assert told["status"] == "stopped"
    print(told["watch"], told["snapshot"])


def test_files_are_there_once_although_the_process_on_prism_is_killed(tmp_path, on_prism):
    folder, output, summary = tmp_path / "in", tmp_path / "out", tmp_path / "summary.json"
    folder.mkdir()
    with Dropper(folder, FILES, SECONDS, seed=FILES):
        for _ in range(5 if IS_SLOW else 1):
            with watch(folder, output, *on_prism):
                time.sleep(SECONDS / (6 if IS_SLOW else 2))
        (folder / "last.jsonl").write_bytes(lines("last", 5))
    with watch(folder, output, *on_prism, f"--summary_json={summary}") as process:
        wait_until(lambda: is_complete(folder, output), process, tmp_path / "log")
        stop(process, tmp_path / "log", summary)
    check_all_is_there_once(folder, output)


def test_a_file_that_kills_the_process_on_prism_fails_after_three_tries(tmp_path, on_prism):
    folder, output, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines("a", 3))
    (tmp_path / "deadly.py").write_text("import os\ndef read(record):\n    os.kill(os.getpid(), 9)\n")
    given = [*on_prism, f"--formatter={tmp_path}/deadly.py:read"]
    for _ in range(3):
        with watch(folder, output, *given) as process:
            assert process.wait(150) == 1
        assert snapshot_of(output) is None
    with watch(folder, output, *given) as process:
        wait_until(lambda: is_complete(folder, output), process, log)
    [failed] = snapshot_of(output).increments
    assert (failed.status, failed.error) == ("failed", "the worker, or the job, ended while it was built")


def test_files_are_there_once_although_taskmanagers_and_the_launcher_on_flink_are_killed(tmp_path, cluster):
    folder, output, summary, log = (tmp_path / name for name in ("in", "out", "summary.json", "log"))
    folder.mkdir()
    on_flink = ["--runner=FlinkRunner", f"--flink_master={cluster.address}", "--parallelism=2"]
    with Dropper(folder, FILES, SECONDS, seed=FILES), watch(folder, output, *on_flink) as process:
        wait_until(lambda: snapshot_of(output), process, log)
        for _ in range(2 if IS_SLOW else 1):
            cluster.kill_taskmanager()
            time.sleep(SECONDS / 3)
    # The launcher was killed with -9, and its job goes on.
    assert cluster.last_job()["state"] in ("RUNNING", "RESTARTING")
    with watch(folder, output, *on_flink) as process:
        assert process.wait(150) == 1
    assert "is running already" in log.read_text()
    cluster.cancel()
    wait_until_cancelled(cluster)
    (folder / "last.jsonl").write_bytes(lines("last", 5))
    with watch(folder, output, *on_flink, f"--summary_json={summary}") as process:
        wait_until(lambda: is_complete(folder, output), process, log)
        stop(process, log, summary)
    wait_until_cancelled(cluster)
    check_all_is_there_once(folder, output)


def test_ticks_on_flink_are_apart_and_counted(tmp_path, cluster):
    def write(tick):
        with path.open("a") as file:
            print(time.monotonic(), *tick, file=file)

    path, flags = tmp_path / "ticks", ["--runner=FlinkRunner", f"--flink_master={cluster.address}", "--streaming"]
    flags += ["--parallelism=2"]
    defaults = flink_defaults(PipelineOptions(flags), flags, str(tmp_path / "out"))
    pipeline = beam.Pipeline(options=PipelineOptions([*defaults, *flags]))
    pipeline | EmitTicks(1, defers=False) | beam.Map(write)
    pipeline.run()
    end = time.monotonic() + 150
    while not path.exists() or len(path.read_text().splitlines()) < 6:
        assert time.monotonic() < end
        time.sleep(0.2)
    cluster.cancel()
    wait_until_cancelled(cluster)
    times, runs, numbers = zip(*(line.split() for line in path.read_text().splitlines()), strict=True)
    assert len({*runs}) == 1
    assert [*map(int, numbers)] == [*range(len(numbers))]
    # Flink resumes a splittable DoFn that defers what is left of it at once, a hundred times a second.
    assert all(float(later) - float(earlier) > 0.5 for earlier, later in pairwise(times))


def test_a_detached_stream_goes_on_and_holds_the_output(tmp_path, cluster):
    folder, output, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    folder.mkdir()
    on_flink = ["--runner=FlinkRunner", f"--flink_master={cluster.address}", "--parallelism=1", "--detach"]
    with watch(folder, output, *on_flink) as process:
        assert process.wait(150) == 0, log.read_text()
    assert f"submitted: http://{cluster.address}/#/job/running/" in log.read_text()
    (folder / "a.jsonl").write_bytes(lines("a", 3))
    end = time.monotonic() + 150
    while not is_complete(folder, output):
        assert time.monotonic() < end
        time.sleep(0.2)
    [claim] = (output / "_chatmill" / "claims").glob("*.json")
    assert "FlinkRunner" in json.loads(claim.read_bytes())["job"]
    cluster.cancel()
    wait_until_cancelled(cluster)


def wait_until_cancelled(cluster: Cluster) -> None:
    end = time.monotonic() + 90
    while cluster.last_job()["state"] != "CANCELED":
        assert time.monotonic() < end
        time.sleep(0.2)
