"""Files that arrive in any way, for a watch, in one process or on a runner."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.cli.options import Options
from pipeline.cli.sources import read_sources
from pipeline.watching import loop
from pipeline.watching.settings import Settings
from support.datasets import build_in_process
from support.paths import ROOT, TOKENIZER
from support.signals import with_default_signals
from transforms.audit.verification.whole import verify
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.inputs.plan_file import decode_plan
from transforms.reading.shard_urls import shards
from transforms.storage.files import read_bytes

SETTLE = 2


def lines(name: str, count: int) -> bytes:
    texts = (f"{name}, record {number}" for number in range(count))
    records = ({"prompt": text, "completion": text} for text in texts)
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


class Dropper:
    """Writes files into a folder at random times within some seconds, each in one of several ways."""

    def __init__(self, folder: Path, files: int, seconds: float, seed: int):
        self._folder = folder
        self._random = random.Random(seed)
        self._threads = [
            threading.Timer(self._random.uniform(0, seconds), self._drop, (f"{number:04d}.jsonl", number))
            for number in range(files)
        ]

    def __enter__(self) -> Dropper:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _drop(self, name: str, number: int) -> None:
        path, content = self._folder / name, lines(name, 1 + number % 7)
        if number == 3:
            path.write_bytes(b'{"neither": "a conversation"}\n' * 3)
        elif number == 7:
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(content)[:-9])
        elif number % 6 == 1:  # slowly
            with path.open("wb") as file:
                for start in range(0, len(content), 1 + len(content) // 4):
                    file.write(content[start : start + 1 + len(content) // 4])
                    file.flush()
                    time.sleep(SETTLE / 5)
        elif number % 6 == 2:  # late: others that came before it are newer
            path.with_suffix(".part").write_bytes(content)
            os.utime(path.with_suffix(".part"), (1_000_000_000, 1_000_000_000))
            path.with_suffix(".part").rename(path)
        elif number % 6 == 4:  # rewritten, before or after it was taken
            path.write_bytes(lines(f"{name}, earlier", 2))
            time.sleep(self._random.uniform(0, 4 * SETTLE))
            path.write_bytes(content)
        else:
            path.write_bytes(content)


@contextmanager
def watch(folder: Path, output: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A watch in a process of its own, which is killed in the end if it still runs."""
    when = ["--every=1s", f"--settle={SETTLE}s", "--min_records=40", "--max_delay=3s", "--rewritten=replace"]
    command = [sys.executable, "-m", "pipeline", "watch", *options(folder), f"--output={output}", *when, *more]
    with output.with_name("log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stderr=log, start_new_session=True, preexec_fn=with_default_signals
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # if it was killed, Prism's server is still there
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def watch_here(
    options: Options, error_of: Callable[[str], Exception | None] = lambda _: None, attempts: int | None = None
) -> list[str]:
    """A watch in this process, until all files are taken and nothing is left, or until there were so many attempts.

    error_of: from the files of an attempt to the error with which it ends, by the letters that they are called.
    Returns the files of each attempt.
    """
    sources, run_job, find = read_sources(options), loop.run_job, loop.find_arriving
    tried: list[str] = []
    looks = itertools.count()

    def run(job, folder, *arguments, **named):
        tried.append("".join(Path(file.url).stem for file in decode_plan(read_bytes(folder.plan))))
        if error := error_of(tried[-1]):
            raise error
        return run_job(job, folder, *arguments, **named)

    def find_or_end(_):
        found, output = find(sources), Path(options.output)
        left = len(found) - sum(len(names) for names, _ in taken(output))
        if len(tried) == attempts or not (left or (output / "_chatmill" / "increments").exists()):
            os.kill(os.getpid(), signal.SIGTERM)
        assert next(looks) < 50
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "run_job", run)
        patch.setattr(loop, "find_arriving", find_or_end)
        loop.Loop(options, sources, [], None, Settings(every=0, settle=0, min_records=1, max_delay=0)).run()
    return tried


def taken(output: Path) -> list[tuple[str, str]]:
    """The letters of the files of each increment, and its status."""
    increments = snapshot.increments if (snapshot := snapshot_of(output)) else ()
    return [("".join(Path(file.url).stem for file in each.inputs), each.status) for each in increments]


def options(folder: Path) -> list[str]:
    return [f"--input={folder}/*.jsonl,{folder}/*.gz", f"--tokenizer={TOKENIZER}"]


def wait_until(condition, process: subprocess.Popen, log: Path, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def snapshot_of(output: Path):
    return Log(Folder(str(output))).newest()


def is_complete(folder: Path, output: Path) -> bool:
    """Whether all files of a folder are taken as they are."""
    snapshot = snapshot_of(output)
    taken = snapshot.taken() if snapshot else {}
    return all(
        any(str(path.stat().st_mtime_ns) in version for version in taken.get((0, str(path)), ()))
        for path in folder.iterdir()
    )


def rows_of(urls: list[str]) -> Counter[str]:
    return Counter(json.dumps(row) for url in urls for row in pq.read_table(url).to_pylist())


def check_all_is_there_once(folder: Path, output: Path) -> None:
    """Assert that a dataset has each file of a Dropper once, as it is, and that those that are poisoned failed."""
    snapshot = snapshot_of(output)
    inputs = Counter(file.url for increment in snapshot.increments for file in increment.inputs)
    assert inputs == Counter(str(path) for path in folder.iterdir())
    failed = [increment.inputs for increment in snapshot.increments if increment.status == "failed"]
    assert sorted(file.url for files in failed for file in files) == [
        f"{folder}/0003.jsonl", f"{folder}/0007.jsonl.gz"
    ]  # fmt: skip
    assert verify(str(output)).faults == []

    for poisoned in ("0003.jsonl", "0007.jsonl.gz"):
        (folder / poisoned).unlink()
    batch = build_in_process(*options(folder)[1:], f"--input={folder}", f"--output={output.with_name('batch')}")
    assert batch.returncode == 0, batch.stderr
    assert rows_of(shards(str(output))) == rows_of(shards(str(output.with_name("batch"))))
