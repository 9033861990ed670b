"""Files that arrive in any way are in the dataset once, as they are in the end, whatever happens to the watch."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from pipeline.cli.program import main
from support.arriving import Dropper, check_all_is_there_once, is_complete, lines, snapshot_of, wait_until, watch
from support.paths import TOKENIZER


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "seconds", "kills"),
    [
        (30, 8, 1),
        pytest.param(1_000, 600, 12, marks=pytest.mark.skipif(not os.environ.get("TEST_SLOW"), reason="TEST_SLOW")),
    ],
)
def test_files_that_arrive_in_any_way_are_there_once_although_the_watch_is_killed(tmp_path, files, seconds, kills):
    folder, output, summary = tmp_path / "in", tmp_path / "out", tmp_path / "summary.json"
    folder.mkdir()
    moments = random.Random(files)
    with Dropper(folder, files, seconds, seed=files):
        for _ in range(kills):
            with watch(folder, output):
                time.sleep(moments.uniform(0.5, 1.5) * (seconds / kills))
    with watch(folder, output, f"--summary_json={summary}") as process:
        wait_until(lambda: is_complete(folder, output), process, tmp_path / "log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    *_, last = (tmp_path / "log").read_text().splitlines()
    assert last.startswith("chatmill: stopped; ")
    assert json.loads(summary.read_text())["status"] == "stopped"
    check_all_is_there_once(folder, output)


@pytest.mark.slow
def test_a_record_that_kills_its_worker_costs_its_file_and_sigterm_waits_for_the_commit(tmp_path):
    folder, output, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.jsonl").write_bytes(lines(name, 3))
    condition = "record['prompt'] != 'b, record 2'"
    deadly = f"import os\ndef read(record):\n    return record if {condition} else os.kill(os.getpid(), 9)\n"
    (tmp_path / "deadly.py").write_text(deadly)
    with watch(folder, output, f"--formatter={tmp_path}/deadly.py:read") as process:
        wait_until(lambda: is_complete(folder, output), process, log)
        wait_until(lambda: not any((output / "_chatmill" / "increments").glob("*")), process, log)
        (folder / "d.jsonl").write_bytes(lines("d", 20_000))
        wait_until(lambda: any((output / "_chatmill" / "increments").glob("*")), process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    found = [([Path(file.url).stem for file in each.inputs], each.status) for each in snapshot_of(output).increments]
    assert found == [(["a"], "done"), (["b"], "failed"), (["c"], "done"), (["d"], "done")]
    shown = log.read_text()
    assert shown.count("a worker was ended by SIGKILL") == 10  # three tries of all, of b and c, and of b; why b failed


def test_a_dataset_that_cannot_grow_by_these_options_ends_a_watch_in_one_line(tmp_path, capsys):
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines("a", 3))
    job = [f"--input={folder}", f"--tokenizer={TOKENIZER}", f"--output={output}"]
    assert main([*job, "--append"]) == 0
    capsys.readouterr()
    command = ["watch", *job]
    assert main([*command, "--max_length=64"]) == 2
    assert "begun with other options or libraries: --max_length" in capsys.readouterr().err
    shutil.rmtree(output / "_chatmill" / "log")
    assert main(command) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "out: its log is missing, so it cannot be appended to. Copy its folder _chatmill, too." in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retry_failed"], "--retry_failed true: chatmill watch does not have this option."),
        (["--detach"], "--detach needs a cluster"),
        (["--runner=PrismRunner", "--detach"], "--detach needs a cluster"),
        (
            ["--runner=FnApiRunner"],
            "--runner FnApiRunner: it does not support streaming; expected DataflowRunner, PrismRunner, FlinkRunner",
        ),
        (["--runner=FlinkRunner", "--every=61s"], "--every 61s: with --runner, 60s or less"),
        (["--runner=FlinkRunner", "--summary_json=-"], "--summary_json -: with --runner, workers write it."),
    ],
)
def test_an_option_that_a_watch_cannot_have_is_refused_in_one_line(tmp_path, capsys, options, message):
    folder, output = tmp_path / "in", tmp_path / "out"
    assert main(["watch", f"--input={folder}/*", f"--tokenizer={TOKENIZER}", f"--output={output}", *options]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert not output.exists()
