"""Measure what it costs to open a dataset of many increments, and to commit one more, by their number.

    .venv/bin/python benchmarks/growth.py --input sgd.jsonl --tokenizer FOLDER [--increments 10,100,400,1000]

The first two are built; the others are made of the second one, with ids, files and inputs of their own. Seconds are of
CPU, since disks differ; each is the median of five.
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
from transforms.dataset.derived import finish_commit
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Change, Increment, Version, commit, newest

_ROUNDS = 5
_decode = msgspec.json.Decoder(Increment).decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="an uncompressed JSONL file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--increments", default="10,100,400,1000", help="how many (default: %(default)s)")
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
        pattern = newest(of)
        assert pattern
        for count in map(int, arguments.increments.split(",")):
            grow(of, pattern, count)
            opened = median(lambda: Dataset(str(output)))
            committed = median(lambda: add(of, pattern))
            sizes = [path.stat().st_size / 1e6 for path in (max(Path(of.versions).iterdir()), Path(of.manifest))]
            rows.append([f"{count:,}", f"{opened:.2f}", f"{committed:.2f}", *(f"{size:.1f}" for size in sizes)])
    publish(
        "growth",
        f"increments of 30 records of {arguments.input.stem}",
        ["increments", "s to open", "s to commit one more", "MB of a version", "MB of manifest.json"],
        rows,
    )


def numbered(pattern: Increment, number: int) -> Increment:
    """An increment like another one, with an id, files and an input of its own."""
    id = hashlib.sha256(str(number).encode()).hexdigest()[:16]
    content = msgspec.json.encode(pattern).replace(pattern.id.encode(), id.encode())
    content = content.replace(b"/b.jsonl", f"/{number}.jsonl".encode())
    return msgspec.structs.replace(_decode(content), version=number)


def grow(folder: Folder, pattern: Version, last: int) -> None:
    """Write a version with so many increments. Those between are not written: nothing is read of them."""
    increments = [pattern.increments[0], *(numbered(pattern.added, number) for number in range(2, last + 1))]
    grown = msgspec.structs.replace(pattern, number=last, increments=increments, sha256="")
    Path(folder.versions, f"{last:08d}.json").write_bytes(msgspec.json.encode(grown))


def add(folder: Folder, pattern: Version) -> None:
    """Commit one more increment, with all that is derived from it."""
    before = newest(folder)
    assert before
    increment = numbered(pattern.added, before.number + 1)
    version = commit(folder, Change(before.number, "append"), increment, pattern.total, before.job)
    finish_commit(folder, version, "none")


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
