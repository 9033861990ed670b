"""Runs resume after a stop, and never commit a wrong or incomplete dataset. test_same_bytes.py has what they write."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import age_work, build_in_process, digests, read_manifest, read_rows, work_in, write_jsonl
from support.forks import kill_before_the_commit
from support.harms import edit_version, flip_a_bit
from support.paths import CHATS, ROOT, TOKENIZER
from support.processes import start_and_wait_for_receipts, wait_until_stopped, wait_until_zombie
from transforms import __version__

INPUTS = [f"--input={CHATS}", "--as_chat=true", f"--tokenizer={TOKENIZER}"]
JOB = [*INPUTS, "--packing=bfd", "--max_length=1024", "--validation_fraction=0.1", "--split_bytes=60000"]
JOB += ["--output_format=parquet,tfrecord"]


def test_a_second_build_is_refused_until_the_first_one_is_gone(build, tmp_path):
    output = tmp_path / "out"
    first = start_and_wait_for_receipts(JOB, output, 1)
    holding = first.pid
    os.killpg(first.pid, signal.SIGSTOP)
    wait_until_stopped(first.pid)
    before = sorted(output.rglob("*"))
    for options in ([], ["--overwrite", "--seed=1", "--validation_fraction=0.2"]):
        second = build(*JOB, f"--output={output}", *options)
        assert second.code == 2
        holder = f"process {holding} on {platform.node()}, since 20"
        assert second.err.startswith(f"chatmill: --output {output}: another run is writing to it: {holder}")
        assert second.err.count("\n") == 1
        assert sorted(output.rglob("*")) == before
    first.kill()
    wait_until_zombie(first.pid)  # nobody waits for it
    done = build(*JOB, f"--output={output}")
    assert done.code == 0, done.err
    assert not (output / "_chatmill" / "lock").exists()
    os.killpg(first.pid, signal.SIGCONT)
    assert first.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_leaves_no_process_and_no_temporary_file_and_shows_how_to_resume(stop, code, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    build = start_and_wait_for_receipts(JOB, tmp_path / "out", 1, TMPDIR=str(temporary))
    workers = psutil.Process(build.pid).children(recursive=True)
    assert workers and list(temporary.iterdir())
    workers[-1].suspend()  # the build does not end before the signal is forwarded
    if stop == signal.SIGINT:
        os.killpg(build.pid, stop)  # as a terminal does: to all of the group
    else:
        build.send_signal(stop)
    _, err = build.communicate(timeout=30)
    assert build.returncode == code
    assert err == "chatmill: stopped. Run the same command again, without --overwrite, to resume.\n"
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive and not list(temporary.iterdir())


def first_receipt(output: Path) -> Path:
    return min((work_in(output) / "receipts").iterdir())


def first_shard(output: Path) -> Path:
    """A shard of the first receipt."""
    return output / json.loads(first_receipt(output).read_bytes())["files"][0]["path"]


def first_exceptions(output: Path) -> Path:
    return next(output.glob("records/records-*-000000-*"))


def stored_tokenizer(output: Path) -> Path:
    (tokenizer,) = (output / "_chatmill" / "tokenizers").iterdir()
    return tokenizer


def flip_a_format(output: Path) -> None:
    plan = work_in(output) / "plan.jsonl"
    plan.write_bytes(plan.read_bytes().replace(b'"format":"json', b'"format":"nson'))


def edit_receipt(output: Path, increment: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """As an attacker may, who knows how checksums are made."""
    path = first_receipt(output)
    receipt = json.loads(path.read_bytes())
    del receipt["checksum"]
    change(receipt)
    content = json.dumps(receipt)
    checksum = hashlib.sha256((increment + content).encode()).hexdigest()
    path.write_text(f'{content[:-1]},"checksum":"{checksum}"}}')


def name_a_file_outside(output: Path) -> None:
    victim = output.parent / "victim.parquet"
    victim.write_bytes(b"victim")
    outside = {"path": "../victim.parquet", "sha256": hashlib.sha256(b"victim").hexdigest()}
    edit_receipt(output, work_in(output).name, lambda receipt: receipt["files"][0].update(outside))


def of_another_increment(output: Path) -> None:
    edit_receipt(output, "0a" * 8, lambda receipt: receipt.update(increment="0a" * 8))


TASK = "task 0 is built again: "
STORED = "was corrupted; rewritten"


DAMAGES = {
    "flipped_shard": (lambda output: flip_a_bit(first_shard(output)), TASK, 1),
    "deleted_shard": (lambda output: first_shard(output).unlink(), TASK, 1),
    "flipped_exceptions": (lambda output: flip_a_bit(first_exceptions(output)), TASK, 1),
    "deleted_exceptions": (lambda output: first_exceptions(output).unlink(), TASK, 1),
    "empty_receipt": (lambda output: first_receipt(output).write_bytes(b""), TASK, 1),
    "zeros_receipt": (lambda output: first_receipt(output).write_bytes(b"\0" * 4096), TASK, 1),
    "flipped_receipt": (lambda output: flip_a_bit(first_receipt(output)), TASK, 1),
    "file_outside": (name_a_file_outside, "names the file '../victim.parquet', which is not one of the increment", 1),
    "another_increment": (of_another_increment, TASK, 1),
    "empty_job": (lambda output: (work_in(output) / "job.json").write_bytes(b""), f"job.json {STORED}", 0),
    "garbled_job": (lambda output: (work_in(output) / "job.json").write_bytes(b"{\0"), f"job.json {STORED}", 0),
    "flipped_plan": (lambda output: flip_a_bit(work_in(output) / "plan.jsonl"), f"plan.jsonl {STORED}", 0),
    "flipped_format": (flip_a_format, f"plan.jsonl {STORED}", 0),
    "template": (lambda output: (stored_tokenizer(output) / "chat_template.jinja").write_text("x"), STORED, 0),
    "vocabulary": (
        lambda output: (stored_tokenizer(output) / "vocab.json").write_text("{}"),
        f"vocab.json {STORED}",
        0,
    ),
}


@pytest.mark.parametrize(("damage", "warning", "tasks"), DAMAGES.values(), ids=DAMAGES)
def test_what_was_damaged_before_a_run_resumes_is_built_again(build, caplog, stopped, damage, warning, tasks):
    output, expected = stopped
    before = {path: path.stat().st_mtime_ns for path in output.glob("data/*")}
    damage(output)
    done = build(*SMALL_JOB, f"--output={output}")
    assert done.code == 0, done.err
    reported = done.err + caplog.text  # workers log, which pytest captures
    assert warning in reported and "Traceback" not in reported
    assert reported.count("is built again") == tasks
    assert digests(output) == expected
    written = {path.name.split("-")[2] for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert len(written) == tasks
    assert chatmill("verify", output) == 0
    victim = output.parent / "victim.parquet"
    assert not victim.exists() or victim.read_bytes() == b"victim"


SMALL_JOB = [*INPUTS, "--split_bytes=300000", "--max_reject_fraction=0.5"]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("small") / "out"
    done = build_in_process(*SMALL_JOB, f"--output={output}", "--direct_num_workers=1")
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def small_before_its_commit(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("before_its_commit") / "out"
    kill_before_the_commit(*SMALL_JOB, f"--output={output}")
    return output


@pytest.fixture
def stopped(small, small_before_its_commit, tmp_path) -> tuple[Path, dict[str, str]]:
    """A dataset as after a kill before its commit, and the digests that it should have in the end."""
    return Path(shutil.copytree(small_before_its_commit, tmp_path / "folder" / "out")), digests(small)


def test_a_finished_dataset_is_left_alone_but_for_what_is_derived_if_it_is_damaged_or_lost(build, small, tmp_path):
    output = Path(shutil.copytree(small, tmp_path / "out"))
    same = [*SMALL_JOB, f"--output={output}", f"--tokenizer={shutil.copytree(TOKENIZER, tmp_path / 'same')}"]
    written = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    ended = build(*same)
    assert ended.code == 0 and "is finished already" in ended.err and "records read" in ended.out
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == written
    for name in ("manifest.json", "README.md", "recipe.yaml"):
        (output / name).write_bytes(b"\0")
    (output / "SHA256SUMS").unlink()
    ended = build(*same)
    said = [line for line in ended.err.splitlines() if not line.startswith("chatmill: hint for ")]
    assert ended.code == 0 and len(said) == 1 and "is finished already" in said[0]
    assert digests(output) == digests(small)


def test_a_version_that_can_never_be_written_ends_the_build(build, small_before_its_commit, tmp_path):
    output = Path(shutil.copytree(small_before_its_commit, tmp_path / "out"))
    shutil.rmtree(output / "_chatmill" / "versions", ignore_errors=True)
    (output / "_chatmill" / "versions").touch()
    ended = build(*SMALL_JOB, f"--output={output}")
    version = output / "_chatmill" / "versions" / "00000001.json"
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == f"chatmill: {version}: it cannot be written (File exists)."


def test_what_killed_processes_left_is_removed(build, stopped):
    output, expected = stopped
    left = [output / "SHA256SUMS", output / "manifest.json", first_receipt(output), first_shard(output)]
    left = [path.with_name(f"{path.name}.{'0a' * 16}") for path in left]
    # A task had another shard when it was cut into shards of another size.
    left.append(Path(str(first_shard(output)).replace("-000000-000.", "-000000-099.")))
    for path in left:
        path.write_bytes(b"")
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    assert build(*SMALL_JOB, f"--output={output}").code == 0
    assert digests(output) == expected
    assert not [path for path in left if path.exists()]


def test_nothing_of_a_build_that_may_be_alive_is_removed(build, small, small_before_its_commit, tmp_path):
    """Such as of a job on a cluster whose launcher was killed."""
    output = Path(shutil.copytree(small_before_its_commit, tmp_path / "out"))
    (output / "_chatmill" / "lock").unlink()
    alive = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    attempt = first_shard(output).with_name(f"train-{'f' * 16}-000000-000.parquet.{'0a' * 16}")
    attempt.write_bytes(b"")
    for more in (["--overwrite"], ["--append", "--on_changed_file=append"]):
        ended = build(*SMALL_JOB, f"--output={output}", *more, *(["--max_length=64"]))
        assert ended.code == 0, ended.err
        assert {path: path.read_bytes() for path in alive if path.is_file()} == alive and attempt.exists()
    age_work(output)
    os.utime(attempt, (time.time() - 2 * 86_400,) * 2)
    assert build(*SMALL_JOB, f"--output={output}", "--overwrite", "--max_length=32").code == 0
    assert not (output / "_chatmill" / "building").exists() and not attempt.exists()


def test_tokenizer_that_is_replaced_after_the_job_was_planned_is_refused(build, monkeypatch, tmp_path):
    output, replace = tmp_path / "out", os.replace

    def replace_and_change_the_tokenizer(source: str, path: str) -> None:
        replace(source, path)
        if path.endswith("/job.json"):
            stored = stored_tokenizer(output) / "tokenizer.json"
            stored.write_text(stored.read_text().replace("Ġthe", "Ġthx"))

    monkeypatch.setattr(os, "replace", replace_and_change_the_tokenizer)
    ended = build(*SMALL_JOB, f"--output={output}", "--direct_num_workers=2")
    stored = stored_tokenizer(output) / "tokenizer.json"
    message = f"chatmill: {stored.parent}: the tokenizer was changed since it was stored. Run the same command again.\n"
    assert ended.code == 2 and ended.err.endswith(message), ended.err  # after the progress, on a busy machine
    assert not (output / "manifest.json").exists()
    monkeypatch.undo()
    ended = build(*SMALL_JOB, f"--output={output}")
    assert ended.code == 0 and ended.err.startswith(f"chatmill: warning: {stored} was corrupted; rewritten\n")


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A small corpus of which one record in ten is malformed."""
    good = {"messages": [user("Hi"), assistant("Hello.")]}
    return write_jsonl(tmp_path / "corpus.jsonl", [good if i % 10 else {"messages": "Hi"} for i in range(100)])


def options_for(corpus: Path, output: Path) -> list[str]:
    return [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={output}"]


def test_a_dataset_is_not_overwritten_by_a_build_that_reads_it_by_whichever_path(build, corpus, tmp_path):
    output = tmp_path / "out"
    assert build(*options_for(corpus, output), "--max_reject_fraction=0.2").code == 0
    [shard] = output.glob("data/*")
    (tmp_path / "link").symlink_to(output)
    (tmp_path / "file.parquet").symlink_to(shard)
    before = digests(output)
    overwrite = [f"--tokenizer={TOKENIZER}", f"--output={output}", "--overwrite"]
    for name in ("out/data", "link/data", "file.parquet"):
        refused = build(f"--input={tmp_path}/{name}", *overwrite)
        assert refused.code == 2
        assert "it is part of the dataset in --output" in refused.err
    assert digests(output) == before
    (output / "mine.jsonl").write_bytes(corpus.read_bytes())  # which no build wrote
    assert build(f"--input={output}/mine.jsonl", *overwrite, "--max_reject_fraction=0.2").code == 0


def test_a_job_that_this_version_does_not_understand_is_refused_until_overwritten(build, corpus, tmp_path):
    output, allowed = tmp_path / "out", "--max_reject_fraction=0.2"
    assert build(*options_for(corpus, output), allowed).code == 0
    known = read_manifest(output)["job"]
    options = known["options"]
    for changed in ({"options": options | {"seed": "x"}}, {"options": options | {"flavour": "sweet"}}, {"inputs": 7}):
        edit_version(output, lambda of, changed=changed: of.update(job=known | changed))
        refused = build(*options_for(corpus, output), allowed)
        assert refused.code == 2
        assert f"this job was not planned by chatmill build {__version__} (" in refused.err
        assert refused.err.startswith(f"chatmill: {output}") and refused.err.count("\n") == 1
    # A job that was planned before there was an option has its default.
    without_seed = {name: value for name, value in options.items() if name != "seed"}
    edit_version(output, lambda of: of.update(job=known | {"options": without_seed}))
    assert build(*options_for(corpus, output), allowed).code == 0
    changed = build(*options_for(corpus, output), allowed, "--seed=1")
    assert (changed.code, "--seed was 0 and is 1" in changed.err) == (2, True)
    assert build(*options_for(corpus, output), allowed, "--overwrite").code == 0
    assert read_manifest(output)["job"]["options"] == options


@pytest.mark.parametrize(
    ("reasons", "note"),
    [
        ({"tools": 3, "kwargs": 5, "engine": 90}, "8 records rendered by the slower reference"),
        ({"tools": 1, "small_input": 99}, None),
        ({}, None),
    ],
)
def test_records_that_the_reference_handled_are_noted_if_they_are_many(build, corpus, tmp_path, reasons, note):
    output, allowed = tmp_path / "out", "--max_reject_fraction=0.2"
    assert build(*options_for(corpus, output), allowed).code == 0
    of_reasons = {"rendered_by_reference": reasons, "tokenized_by_reference": {}}
    first = {"rendered_by_reference": {"file": "a.jsonl", "position": "byte 7", "detail": "why"}}
    edit_version(output, lambda of: of["total"].update(of_reasons, first_examples=first))
    err = build(*options_for(corpus, output), allowed).err
    if note is None:
        assert "by the reference" not in err
    else:
        assert f"chatmill: warning: {note}" in err
        assert " reference: kwargs 5, tools 3 (docs/engines.md)\n" in err


def test_a_template_that_prints_the_date_prints_the_same_in_a_resumed_run(build, corpus, tmp_path):
    turns = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    template = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}" + turns
    options = [*options_for(corpus, tmp_path / "out"), f"--chat_template={template}"]
    assert build(*options).code == 1
    now = json.loads((work_in(tmp_path / "out") / "job.json").read_text())["now"]
    assert now
    time.sleep(1.1)
    another = "--now=2020-02-29T01:02:03"

    def is_refused(*more: str) -> bool:
        ended = build(*options, another, *more)
        return ended.code == 2 and f"now was {now} and is 2020-02-29T01:02:03" in ended.err

    assert is_refused() and is_refused("--append")
    assert build(*options, "--max_reject_fraction=1", "--append").code == 0
    assert read_manifest(tmp_path / "out")["job"]["now"] == now
    new = write_jsonl(tmp_path / "new.jsonl", [{"text": "one"}])
    assert is_refused(f"--input={new}", "--append")
    fixed = [*options_for(corpus, tmp_path / "fixed"), f"--chat_template={template}", "--max_reject_fraction=1"]
    assert build(*fixed, another).code == 0
    refused = build(*fixed, "--now=2021-01-01T00:00:00")
    assert (refused.code, "--now was 2020-02-29T01:02:03 and is 2021-01-01T00:00:00" in refused.err) == (2, True)
    from transformers import AutoTokenizer

    first = read_rows(tmp_path / "fixed")[0]["input_ids"]
    assert AutoTokenizer.from_pretrained(TOKENIZER).decode(first) == "2020-02-29 01:02:03HiHello."


def test_the_line_that_loads_tfrecord_names_its_compression(build, tmp_path):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"text": "Once upon a time"}])
    ended = build(*options_for(corpus, tmp_path / "out"), "--output_format=tfrecord.gz")
    assert ended.code == 0, ended.err
    end = '-*.tfrecord.gz"), compression_type="GZIP")'
    assert ended.out.rstrip().endswith(end) and end in (tmp_path / "out" / "README.md").read_text()


def test_a_corpus_without_a_single_row_fails(build, tmp_path):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": [user("Hi")]}] * 3)
    ended = build(*options_for(corpus, tmp_path / "out"))
    assert ended.code == 1
    assert ended.err == "chatmill: all 3 records were dropped or rejected: no_trained_tokens 3.\n"


def test_a_corpus_of_rejects_alone_fails_with_the_first_record_of_each_reason(build, tmp_path):
    record = {"chosen": "Yes.", "rejected": "No.", "prompt": "Is tea hot?"}
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"a": 1}, record, record])
    ended = build(*options_for(corpus, tmp_path / "out"), "--max_reject_fraction=1")
    assert ended.code == 1
    assert "all 3 records were dropped or rejected: preference_data 2, unknown_schema 1." in ended.err
    rejects = tmp_path / "out" / "records" / f"records-{work_in(tmp_path / 'out').name}"
    assert f"The rejected records are in {rejects}-*. The most frequent reasons:\n" in ended.err
    assert f"\n  unknown_schema (1): {corpus}, byte 0: the columns are a; expected " in ended.err
    assert [*rejects.parent.iterdir()] == [rejects.with_name(f"{rejects.name}-000000-000.parquet")]
    # The option that trains on the pairs is named before the build and after it.
    advice = "--schema chosen"
    warning = f"chatmill: warning: a chosen and a rejected answer ({corpus}, byte 9) are"
    assert ended.err.count(warning) == 1 and ended.err.count(advice) == 2
    assert not (tmp_path / "out" / "manifest.json").exists()


def stderr_in_a_terminal(*options: str) -> list[str]:
    """The lines that a build prints on standard error if that is a terminal, without those of the progress bar."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pipeline", *options]
    build = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # on Linux, reading ends so when nobody has the other side open
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    assert build.wait() == 0, shown
    return [line.strip() for line in shown.decode().splitlines() if line.startswith("chatmill: ")]


def test_a_terminal_shows_each_phase_from_the_beginning_and_a_log_nothing(tmp_path):
    corpus = tmp_path / "chats.jsonl"
    corpus.write_text('{"text": "one"}\n' * 10)
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--direct_num_workers=2"]
    assert stderr_in_a_terminal(*options, f"--output={tmp_path}/out") == [
        f"chatmill: building {tmp_path}/out",
        "chatmill: importing Beam",
        "chatmill: listing the input",
        f"chatmill: reading the tokenizer {TOKENIZER}",
        "chatmill: 160 bytes of input in 1 task",
        "chatmill: starting 2 workers",
    ]
    assert build_in_process(*options, f"--output={tmp_path}/again").stderr == ""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has one worker")
def test_how_much_a_compressed_file_holds_decides_how_many_workers_are_useful(tmp_path):
    corpus = tmp_path / "chats.jsonl.gz"
    noise = (random.Random(number).randbytes(1 << 19).hex().encode() for number in range(12))
    content = b"".join(b'{"text": "one", "noise": "%s"}\n' % each for each in noise)
    corpus.write_bytes(gzip.compress(content))
    assert corpus.stat().st_size < 8 << 20 < len(content)
    shown = stderr_in_a_terminal(f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out")
    assert re.fullmatch(r"chatmill: starting [234] workers", shown[-1])


def test_the_size_of_a_job_that_takes_longer_is_also_in_a_log(build, tmp_path):
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"text": "one", "noise": "x" * (1 << 20)}] * 8)
    ended = build(f"--input={chats}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", "--split_bytes=3000000")
    assert "chatmill: 8.4 MB of input in 3 tasks\n" in ended.err
