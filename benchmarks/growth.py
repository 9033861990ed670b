"""Measure what it costs to open a dataset of many increments, and to commit one more, by their number.

    .venv/bin/python benchmarks/growth.py --input sgd.jsonl --tokenizer FOLDER [--increments 100,1000,10000,43000]

43,000 are those of a month, one a minute. The first two are built; the entries of the others are made of the second
one, with ids, files and inputs of their own. Seconds are of CPU, since disks differ; each is the median of five.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from measure import build, publish

from transforms import Dataset
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Entry, Increment
from transforms.publish.derived import derive

_ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="an uncompressed JSONL file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--increments", default="100,1000,10000,43000", help="how many (default: %(default)s)")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out")
        inputs = Path(folder, "in")
        inputs.mkdir()
        with arguments.input.open("rb") as lines:
            for name in "ab":
                (inputs / f"{name}.jsonl").write_bytes(b"".join(itertools.islice(lines, 30)))
                options = [f"--input={inputs}", f"--tokenizer={arguments.tokenizer.resolve()}", f"--output={output}"]
                build([*options, "--max_length=2048", "--append", "--direct_num_workers=1"])
        of = Folder(str(output))
        pattern = Log(of).versions()[1].add
        for count in map(int, arguments.increments.split(",")):
            grow(of, pattern, count - 2)
            opened = median(lambda: Dataset(str(output)))
            committed = median(lambda: commit(of, pattern))
            checkpoint = max(Path(of.log).glob("*.checkpoint.json"), default=None)
            sizes = [path.stat().st_size / 1e6 if path else 0 for path in (checkpoint, Path(of.manifest))]
            rows.append([f"{count:,}", f"{opened:.2f}", f"{committed:.2f}", *(f"{size:.1f}" for size in sizes)])
    publish(
        "growth",
        f"increments of 30 records of {arguments.input.stem}",
        ["increments", "s to open", "s to commit one more", "MB of the checkpoint", "MB of manifest.json"],
        rows,
    )


def numbered(pattern: Increment, number: int, version: int) -> Increment:
    """An increment like another one, with an id, files and an input of its own."""
    id = hashlib.sha256(str(number).encode()).hexdigest()[:16]
    content = msgspec.json.encode(pattern).replace(pattern.id.encode(), id.encode())
    content = content.replace(b"/b.jsonl", f"/{number}.jsonl".encode())
    return msgspec.structs.replace(msgspec.json.decode(content, type=Increment), version=version)


def grow(folder: Folder, pattern: Increment, last: int) -> None:
    """Write entries as commits do, without the derived files after each, and a checkpoint 50 entries before the end."""
    snapshot = Log(folder).newest()
    assert snapshot
    for version in range(snapshot.version + 1, last + 1):
        add = numbered(pattern, version, version)
        entry = Entry(version, snapshot.entry, "append", add, (), "2026-01-01T00:00:00+00:00", None, snapshot.total)
        content = msgspec.json.encode(entry)
        Path(folder.log, f"{version:08d}.json").write_bytes(content)
        snapshot = snapshot.after(entry, hashlib.sha256(content).hexdigest())
        if version == last - 50:
            Path(folder.log, f"{version:08d}.checkpoint.json").write_bytes(msgspec.json.encode(snapshot))


def commit(folder: Folder, pattern: Increment) -> None:
    """Commit one more increment, with all that is derived from the log."""
    log = Log(folder)
    before = log.newest()
    assert before
    snapshot = log.commit("append", numbered(pattern, before.version + 1, 0), before.version)
    derive(folder, snapshot, "none")


def median(call: Callable[[], Any]) -> float:
    """The CPU of a call in seconds."""
    times = []
    for _ in range(_ROUNDS):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    main()
