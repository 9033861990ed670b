"""Flink, on a cluster that the tests start, and inside the job server: the same bytes as on the local runner."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.datasets import build_in_process, digests, read_manifest, work_in
from support.drawn import AT_LENGTH
from support.flink import FLINK, Cluster, install_flink, running_cluster
from support.paths import CHATS, TOKENIZER
from support.processes import start, wait_until

pytestmark = pytest.mark.nightly

# How many times the examples are copied: with TEST_SLOW they are 200 MB.
COPIES, SPLIT_BYTES, SECONDS = (280, 2_000_000, 1_500) if AT_LENGTH else (8, 60_000, 400)
# The reference engine is slow, so that a job can be interrupted in the middle.
JOB = [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", f"--split_bytes={SPLIT_BYTES}", "--engine=reference"]


@pytest.fixture(scope="module")
def installed() -> None:
    install_flink()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Several copies of the examples."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(COPIES):
        shutil.copytree(CHATS, folder / str(number))
    return folder


@pytest.fixture(scope="module")
def local(corpus, tmp_path_factory) -> Path:
    """The dataset as built by Beam's local runner."""
    output = tmp_path_factory.mktemp("local") / "out"
    done = build_in_process(f"--input={corpus}", *JOB, f"--output={output}")
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def cluster(installed, tmp_path_factory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("flink") / "a cluster", 3) as cluster:
        yield cluster


def list_receipts(output: Path) -> list[Path]:
    """The receipts of a build that is not committed."""
    return [*output.glob("_chatmill/building/*/receipts/*.json")]


def test_job_is_done_by_all_its_taskmanagers_with_the_bytes_of_the_local_runner(cluster, corpus, local, tmp_path):
    output = tmp_path / "out"
    job = [f"--input={corpus}", *JOB, f"--output={output}", *FLINK, f"--flink_master={cluster.address}"]
    done = build_in_process(*job, "--parallelism=2", timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert digests(output) == digests(local)
    wait_until(lambda: cluster.last_job()["state"] == "FINISHED", seconds=30)
    written = cluster.tasks_written(cluster.last_job())
    assert len(written) == 2 and min(written.values()) > 0
    assert sum(written.values()) == read_manifest(output)["job"]["tasks"]


def test_stopped_run_cancels_its_job(cluster, corpus, tmp_path):
    output = tmp_path / "out"
    build = start(f"--input={corpus}", *JOB, f"--output={output}", *FLINK, f"--flink_master={cluster.address}")
    wait_until(lambda: list_receipts(output), build, SECONDS)
    os.killpg(build.pid, signal.SIGINT)  # as a terminal does: to the job server as well
    _, stderr = build.communicate(timeout=30)
    assert build.returncode == 130
    assert stderr.endswith("chatmill: stopped. Run the same command again, without --overwrite, to resume.\n")
    assert "Traceback" not in stderr
    wait_until(lambda: cluster.last_job()["state"] == "CANCELED", seconds=30)
    assert not (output / "manifest.json").exists()


def test_job_continues_after_a_taskmanager_and_its_worker_were_killed(cluster, corpus, local, tmp_path):
    output = tmp_path / "out"
    job = [f"--input={corpus}", *JOB, f"--output={output}"]
    build = start(*job, *FLINK, f"--flink_master={cluster.address}", "--parallelism=2")
    wait_until(lambda: len(list_receipts(output)) >= 5, build, SECONDS)
    cluster.kill_taskmanager()
    before = [json.loads(path.read_bytes()) for path in list_receipts(output)]
    # If one shard of a file that cannot be cut is missing, all of it is read again.
    whole = {receipt["task"] for receipt in before if receipt["last"]}
    kept = [shard["path"] for receipt in before if receipt["task"] in whole for shard in receipt["files"]]
    written = {path: (output / path).stat().st_mtime_ns for path in kept}
    assert written and len(before) < json.loads((work_in(output) / "job.json").read_bytes())["tasks"]
    _, stderr = build.communicate(timeout=SECONDS)
    assert build.returncode == 0, stderr
    assert cluster.last_job()["timestamps"]["RESTARTING"] > 0
    assert digests(output) == digests(local)
    assert read_manifest(output)["records"] == read_manifest(local)["records"]
    assert {path: (output / path).stat().st_mtime_ns for path in kept} == written


def test_embedded_flink_writes_the_same_bytes_and_shows_an_error_once(installed, corpus, local, tmp_path):
    job = [f"--input={corpus}", *JOB, f"--output={tmp_path}/out", *FLINK]
    refused = build_in_process(*job, "--max_reject_fraction=0")
    assert refused.returncode == 1
    rejected = f"{5 * COPIES:,} of {600 * COPIES:,} records were rejected, more than max_reject_fraction 0"
    assert refused.stderr.count(f"chatmill: {rejected}") == 1
    assert "Traceback" not in refused.stderr
    done = build_in_process(*job)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "out") == digests(local)


@pytest.mark.parametrize(
    ("options", "path", "code", "message"),
    [
        ([*FLINK, "--flink_master=localhost:1"], None, 1, "http://localhost:1: no Flink cluster answers there"),
        ([*FLINK], "", 2, "java is not installed"),
        ([*FLINK, "--flink_version=0.9"], None, 2, "--flink_version: invalid choice"),
    ],
)
def test_missing_program_or_cluster_is_reported_in_one_line(
    installed, build, monkeypatch, tmp_path, options, path, code, message
):
    if path is not None:
        monkeypatch.setenv("PATH", path)
    ended = build(f"--input={CHATS}", *JOB, f"--output={tmp_path}/out", *options)
    assert ended.code == code
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not os.path.exists(tmp_path / "out")


@pytest.fixture
def empty_cluster(installed, tmp_path) -> Iterator[Cluster]:
    """A cluster without TaskManagers, like clusters that start them when a job needs them. Its jobs wait."""
    with running_cluster(tmp_path / "cluster", 0) as cluster:
        yield cluster


def test_cluster_without_taskmanagers_accepts_a_job_with_explicit_parallelism(empty_cluster, build, tmp_path):
    job = [f"--input={CHATS}", *JOB, f"--output={tmp_path}/out", *FLINK, f"--flink_master={empty_cluster.address}"]
    refused = build(*job, "--parallelism=2")
    assert refused.code == 1 and "give --parallelism and --sdk_worker_parallelism" in refused.err
    assert not (tmp_path / "out").exists()
    waiting = start(*job, "--parallelism=2", "--sdk_worker_parallelism=1")
    wait_until(lambda: empty_cluster.get("jobs/overview")["jobs"], waiting)

    (manager,) = empty_cluster.processes()
    manager.suspend()
    os.killpg(waiting.pid, signal.SIGINT)
    _, stderr = waiting.communicate(timeout=60)
    manager.resume()
    assert waiting.returncode == 130
    assert "stopped. Only this launcher: the job could not be cancelled: --flink_master" in stderr
