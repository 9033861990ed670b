"""A job writes the same bytes however it runs, and however it dies and goes on: jobs x ways, one digest for each job.

What one worker wrote obeys the laws of rows, and its sums add up. The order of records changes no outcome.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import forks
from support.cases import framed
from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import (
    assert_statistics_add_up,
    build_in_process,
    digests,
    read_manifest,
    read_rejects,
    read_rows,
    write_jsonl,
)  # fmt: skip
from support.disk import Disk, lost_shards, sha256
from support.drawn import AT_LENGTH
from support.flink import FLINK, Cluster, install_flink, running_cluster
from support.laws import broken_laws
from support.paths import CHATS, ROOT, TOKENIZER
from support.processes import start_and_wait_for_receipts
from support.programs import PRISM, go_program, why_no_program
from support.stores import Store, running, s3
from support.templates import models_and_odd

pytestmark = pytest.mark.slow

OWN = (TOKENIZER / "chat_template.jinja").read_text()
# Without those that reject all records: no generation prompt, or a token that the tokenizer does not have.
ALL_REJECTED = {"own_remember", "own_remember_sections", "repeats_question", "llama3"}
OF_ALL = {name: template for name, template in models_and_odd().items() if name not in ALL_REJECTED}
TEMPLATES = {"tools": OWN} | (OF_ALL if AT_LENGTH else {"qwen3_5_think": OF_ALL["qwen3_5_think"]})


def records() -> list[dict[str, Any]]:
    """Conversations as corpora have them: with tools, reasoning, parts."""
    return [{"id": f"{number}", **framed(number).record} for number in range(320)]


def chat(number: int, topic: str) -> dict[str, Any]:
    words = "word " * (number % 40)
    return {"id": f"{topic}-{number}", "messages": [user(f"{topic} number {number}?"), assistant(f"{topic}: {words}")]}


# The jobs: each writes its inputs into a folder, and returns the options of its commands, one for each version. The
# last file of each is compressed.
FORMATTER = """
import os, sys
if "SEEN" in os.environ:
    with open(os.environ["SEEN"], "a") as file:
        print(os.getpid(), os.getppid(), "transformers" in sys.modules, file=file)

def doubled(record):
    return [record, {**record, "id": record["id"] + " again"}] if record["id"].endswith("7") else record
"""
SPLIT = ["--validation_fraction=0.1", "--max_reject_fraction=0.5"]


def plain(folder: Path) -> list[list[str]]:
    shutil.copytree(CHATS, folder, dirs_exist_ok=True)
    packed = ["--as_chat=true", "--packing=bfd", "--max_length=1024", "--split_bytes=60000"]
    return [[f"--input={folder}", *packed, *SPLIT, "--output_format=parquet,tfrecord"]]


def with_tools(folder: Path, template: str) -> list[list[str]]:
    (folder / "template.jinja").write_text(template)
    corpus = write_jsonl(folder / "corpus.jsonl", records())
    options = ["--max_reject_fraction=1", "--keep_columns=id", "--split_bytes=16000", "--now=2026-11-20"]
    split = ["--validation_fraction=0.1", "--output_format=parquet,tfrecord"]
    inputs = f"--input={corpus},{folder}/last.jsonl.gz"
    return [[inputs, f"--chat_template={folder}/template.jinja", *options, *split]]


def exchange(folder: Path) -> list[list[str]]:
    sources = {"few": (40, 3), "many": (300, 5), "last": (0, 2)}
    entries = []
    for name, (size, weight) in sources.items():
        of_source = [chat(number % 30, name) for number in range(size)] + [{"messages": "none"}]
        path = folder / f"{name}.jsonl.gz" if name == "last" else write_jsonl(folder / f"{name}.jsonl", of_source)
        entries.append({"name": name, "input": [str(path)], "weight": weight})
    (folder / "recipe.yaml").write_text(json.dumps({"sources": entries}))
    exchanged = ["--shuffle=global", "--dedup=exact", "--split_bytes=4000", "--packing=bfd", "--max_length=256"]
    return [[f"--recipe={folder}/recipe.yaml", *exchanged, *SPLIT, "--keep_columns=id", "--provenance"]]


def formatter(folder: Path) -> list[list[str]]:
    (folder / "formatter.py").write_text(FORMATTER)
    write_jsonl(folder / "a.jsonl", [chat(number, "one") for number in range(200)])
    inputs = f"--input={folder}/a.jsonl,{folder}/last.jsonl.gz"
    cut = ["--max_length=24", "--truncation=windows", "--shift_labels", "--output_format=parquet,tfrecord.gz"]
    return [[inputs, f"--formatter={folder}/formatter.py:doubled", *cut, *SPLIT, "--provenance", "--split_bytes=4000"]]


def append(folder: Path) -> list[list[str]]:
    options = [
        "--append",
        "--split_bytes=9000",
        "--max_length=32",
        "--truncation=keep_end",
        "--keep_columns=id",
        *SPLIT,
    ]
    commands = []
    for day in ("a", "b"):
        name = write_jsonl(folder / f"{day}.jsonl", [chat(number, day) for number in range(150)])
        commands.append([f"--input={name}" + f",{folder}/last.jsonl.gz" * (day == "b"), *options])
    return commands


JOBS: dict[str, Callable[[Path], list[list[str]]]] = {
    "plain": plain, "exchange": exchange, "formatter": formatter, "append": append,
}  # fmt: skip
JOBS |= {name: lambda folder, template=template: with_tools(folder, template) for name, template in TEMPLATES.items()}


@dataclass(frozen=True)
class Job:
    """The dataset that a job by one worker has made, and how.

    Args:
        name: of the job.
        inputs: the folder of its files.
        commands: the options of its builds, without --output.
        changes: how often each of them changed the disk.
        output: the folder of the dataset.
    """

    name: str
    inputs: Path
    commands: list[list[str]]
    changes: list[int]
    output: Path


ONE = "--direct_running_mode=in_memory"  # by the launcher itself, also with a formatter


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Callable[[str], Job]:
    """Makes the dataset of a job by its name, once."""

    @functools.cache
    def make(name: str) -> Job:
        folder = tmp_path_factory.mktemp(name)
        inputs, output = folder / "in", folder / "out"
        inputs.mkdir()
        last = "".join(f"{json.dumps(chat(number, 'last'))}\n" for number in range(60))
        (inputs / "last.jsonl.gz").write_bytes(gzip.compress(last.encode(), mtime=0))
        commands = [[*command, f"--tokenizer={TOKENIZER}"] for command in JOBS[name](inputs)]
        built = [forks.race(["build", *command, ONE, f"--output={output}"])[0] for command in commands]
        assert [each.code for each in built] == [0] * len(commands), built
        changes = [each.changes for each in built]
        assert broken_laws(output) == []
        manifest = read_manifest(output)
        assert_statistics_add_up(manifest)
        assert "compiled_template_differs" not in manifest["notes"] and len(manifest["shards"]) > 1
        assert chatmill("verify", output) == 0 and not (output / "_chatmill/building").exists()
        return Job(name, inputs, commands, changes, output)

    return make


def build(job: Job, output: Path | str, *options: str) -> None:
    """Build the dataset of a job in this process."""
    for command in job.commands:
        assert chatmill("build", *command, *options, f"--output={output}") == 0


Way = Callable[[Job, Path, pytest.FixtureRequest], None]


def with_options(*options: str) -> Way:
    return lambda job, output, _: build(job, output, *options)


WITH_A_THREAD = """
import sys, threading
from pipeline import main
if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
"""


def by_program(job: Job, output: Path, *program: str) -> None:
    """Build the dataset of a job by two workers of a program."""
    environment = {**os.environ, "SEEN": f"{output.parent}/seen"}
    for command in job.commands:
        arguments = [sys.executable, *program, "build", *command, f"--output={output}", "--direct_num_workers=2"]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr


def forked(job: Job, output: Path, _: pytest.FixtureRequest) -> None:
    """From a process that has imported what all workers need, but not the formatter: it may start threads, or CUDA."""
    by_program(job, output, "-m", "pipeline")
    if job.name == "formatter":
        (launcher, *_), *workers = [line.split() for line in (output.parent / "seen").read_text().splitlines()]
        [(parent, has_transformers)] = {(parent, has_transformers) for _, parent, has_transformers in workers}
        assert len(workers) == 2 and parent != launcher and has_transformers == "True"


def with_a_thread(job: Job, output: Path, _: pytest.FixtureRequest) -> None:
    """The launcher has a thread from the beginning, so that it cannot fork workers itself."""
    by_program(job, output, "-c", WITH_A_THREAD)


# What is changed when all is written: the commit, what is derived from it, and what is removed.
LAST_CHANGES = ("/_chatmill/versions/", "README.md", "SHA256SUMS", "plan.jsonl", "manifest.json")


def killed_at_a_change(job: Job, output: Path, request: pytest.FixtureRequest) -> None:
    """The launcher, which is the one worker, before a change of the disk, drawn; and again, at or after the commit."""
    draw, turn = random.Random(request.node.name), [*JOBS].index(job.name) + request.node.callspec.params["number"]
    for number, (command, changes) in enumerate(zip(job.commands, job.changes, strict=True)):
        options = [*command, ONE, f"--output={output}"]
        assert forks.kill(draw.randint(1, changes), "build", *options).code == forks.KILLED
        forks.kill(LAST_CHANGES[(turn + number) % len(LAST_CHANGES)], "build", *options)
        assert chatmill("build", *options) == 0


def killed_with_workers(job: Job, output: Path, request: pytest.FixtureRequest) -> None:
    """The launcher, one of two workers, or all of them: what was finished is not written again."""
    draw = random.Random(request.node.name)
    for command in job.commands:
        receipts = draw.choice([0, 1, 1, 2])
        started = start_and_wait_for_receipts(["build", *command], output, receipts)
        time.sleep(0 if receipts else draw.uniform(0, 3))
        children = psutil.Process(started.pid).children(recursive=True)
        how, pids = draw.choice(["launcher", "worker", "all"]), [started.pid, *(child.pid for child in children)]
        for pid in {"launcher": pids[:1], "worker": pids[1:][-1:], "all": pids}[how]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, shown = started.communicate(timeout=60)
        assert "Traceback" not in shown
        if how == "worker" and started.returncode:
            assert started.returncode == 1 and "chatmill: a worker was ended by SIGKILL" in shown
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
        found = [json.loads(path.read_bytes()) for path in output.glob("_chatmill/building/*/receipts/*.json")]
        # If some shards of a task are missing, it is built again from its start.
        tasks = {receipt["task"] for receipt in found if receipt["last"]}
        paths = [output / of["path"] for receipt in found if receipt["task"] in tasks for of in receipt["files"]]
        written = {path: path.stat().st_mtime_ns for path in paths}
        assert chatmill("build", *command, f"--output={output}") == 0
        assert {path: path.stat().st_mtime_ns for path in written} == written


def power_cut(job: Job, output: Path, request: pytest.FixtureRequest) -> None:
    """After some sync, drawn. After each of them nothing refers to what is lost, and the manifest is not too early."""
    disk = Disk(output.parent)
    with disk.watched():
        build(job, output, ONE)
    expected, finished, states = digests(output), 0, disk.states()
    for files in states:
        assert lost_shards(files) == []
        if "out/manifest.json" in files and len(job.commands) == 1:
            finished += 1
            left = {name.removeprefix("out/"): sha256(content) for name, content in files.items()}
            assert {name: digest for name, digest in left.items() if not name.startswith("_chatmill/")} == expected
    assert finished or len(job.commands) > 1
    disk.cut(random.Random(request.node.name).choice(states))
    build(job, output, ONE)


def unreadable_at_first(job: Job, output: Path, _: pytest.FixtureRequest) -> None:
    """The last file, in whose end bits are flipped, and which then is as it was."""
    file = job.inputs / "last.jsonl.gz"
    whole, status = file.read_bytes(), file.stat()
    hook = threading.excepthook  # a build has its own while it runs
    for content, expected in ((whole[:-8] + bytes(8), 1), (whole, 0)):
        file.write_bytes(content)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        codes = [chatmill("build", *command, f"--output={output}") for command in job.commands]
        assert codes == [0] * (len(codes) - 1) + [expected] and threading.excepthook is hook


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running(s3) as store:
        store.files.mkdir("out")
        yield store


def in_a_bucket(job: Job, output: Path, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue("store")
    place = f"out/{uuid.uuid4().hex}"
    build(job, store.url(place), ONE)
    store.files.invalidate_cache()
    store.files.get(place, str(output), recursive=True)


def on_prism(job: Job, output: Path, _: pytest.FixtureRequest) -> None:
    program = go_program(PRISM)
    if program is None:
        pytest.skip(why_no_program(PRISM))
    for command in job.commands:
        prism = ["--runner=PrismRunner", f"--prism_location={program}"]
        done = build_in_process(*command, *prism, f"--output={output}", timeout=300)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    install_flink()
    with running_cluster(tmp_path_factory.mktemp("flink") / "a cluster", 3) as cluster:
        yield cluster


def on_flink(job: Job, output: Path, request: pytest.FixtureRequest) -> None:
    cluster: Cluster = request.getfixturevalue("cluster")
    for command in job.commands:
        flink = [*FLINK, f"--flink_master={cluster.address}", "--parallelism=2"]
        done = build_in_process(*command, *flink, f"--output={output}", timeout=1_500)
        assert done.returncode == 0, done.stderr


WAYS: dict[str, Way] = {
    "two": with_options("--direct_num_workers=2"),
    "three": with_options("--direct_num_workers=3"),
    "one_process": with_options("--direct_num_workers=1", "--direct_running_mode=multi_processing"),
    "forked": forked,
    "with_a_thread": with_a_thread,
    "killed": killed_at_a_change,
    "killed_workers": killed_with_workers,
    "power_cut": power_cut,
    "unreadable": unreadable_at_first,
    "bucket": in_a_bucket,
    "prism": on_prism,
    "flink": on_flink,
}
# Each job meets each kind of way: workers, kills, faults, elsewhere. The nightly lane has the product.
CELLS = {
    "plain": "with_a_thread killed killed_workers power_cut prism",
    "tools": "three killed unreadable bucket",
    "exchange": "two with_a_thread killed power_cut prism",
    "formatter": "forked killed_workers unreadable bucket",
    "append": "one_process killed power_cut unreadable bucket",
}
DRAWN, DRAWS = ("killed", "killed_workers", "power_cut"), 10


def cells() -> Iterator[Any]:
    for job in JOBS:
        for way in WAYS if AT_LENGTH else CELLS.get(job, "").split():
            for number in range(DRAWS if AT_LENGTH and way in DRAWN else 1):
                marks = [pytest.mark.nightly] * (way == "flink")
                yield pytest.param(job, way, number, id=f"{job}-{way}-{number}", marks=marks)


def without_attempts(names: Iterable[str]) -> set[str]:
    """All but those of files that were being written: who writes them may be alive, so they stay for a day."""
    return {name for name in names if not re.fullmatch(r".+\.[0-9a-f]{32}", name)}


def names_in(output: Path) -> set[str]:
    return without_attempts(str(path.relative_to(output)) for path in output.rglob("*"))


@pytest.mark.parametrize(("name", "way", "number"), [*cells()])
def test_job_writes_the_same_bytes_in_each_way(made, name, way, number, tmp_path, request):
    job, output = made(name), tmp_path / "out"
    temporary = tempfile.gettempdir()
    WAYS[way](job, output, request)
    assert tempfile.gettempdir() == temporary  # a build has a folder of its own there
    written = digests(output)
    assert {name: written[name] for name in without_attempts(written)} == digests(job.output)
    if way != "flink":  # a cluster may still be removing what it needed
        assert names_in(output) == names_in(job.output)


# What is counted in a sample, which the order changes.
SAMPLED = "parity_"


def outcomes_by_record(output: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """The row of each record that has one, why each other one is rejected, and what was counted of all."""
    rows = {row.pop("id"): row for split in ("train", "validation") for row in read_rows(output, split)}
    rejects = {json.loads(row["record"])["id"]: (row["reason"], row["detail"]) for row in read_rejects(output)}
    notes = read_manifest(output)["notes"]
    return rows, rejects, {name: count for name, count in notes.items() if not name.startswith(SAMPLED)}


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_record_has_its_own_outcome_in_any_order(made, name, tmp_path):
    job = made(name)
    lines = (job.inputs / "corpus.jsonl").read_text().splitlines(keepends=True)
    random.Random(2).shuffle(lines)
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    others = [option for option in job.commands[0] if not option.startswith("--input=")]
    inputs = f"--input={tmp_path}/corpus.jsonl,{job.inputs}/last.jsonl.gz"
    assert chatmill("build", inputs, *others, f"--output={tmp_path}/out") == 0
    rows, rejects, notes = outcomes_by_record(tmp_path / "out")
    assert rows and len(rows) + len(rejects) == len(lines) + 60
    assert (rows, rejects, notes) == outcomes_by_record(job.output)
