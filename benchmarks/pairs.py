"""Measure the same conversations in two forms: as TFRecord and Parquet, compressed and not, in many files and in one.

    .venv/bin/python benchmarks/pairs.py --input sgd.jsonl --tokenizer FOLDER [--rounds 3]

The whole command is measured, with two workers. Both forms are built in each round; the table has the medians.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import zstandard
from measure import Build, build, publish, repeated


def median(builds: Sequence[Build]) -> Build:
    seconds, cpu = (statistics.median(getattr(built, name) for built in builds) for name in ("seconds", "cpu"))
    return builds[0]._replace(seconds=seconds, cpu=cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="an uncompressed JSONL file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        common = [f"--tokenizer={arguments.tokenizer.resolve()}", f"--output={folder}/out", "--overwrite"]
        common += ["--packing=bfd", "--max_length=4096", "--direct_num_workers=2"]
        plain = repeated(arguments.input, 4, folder / "plain.jsonl")
        with open(folder / "plain.jsonl.zst", "wb") as file, plain.open("rb") as source:
            zstandard.ZstdCompressor().copy_stream(source, file)
        many = folder / "many"
        many.mkdir()
        with arguments.input.open("rb") as file:
            lines = list(itertools.islice(file, 3000))
        for number, line in enumerate(lines):
            (many / f"{number:04}.jsonl").write_bytes(line)
        (folder / "one.jsonl").write_bytes(b"".join(lines))
        pairs = [
            {"Parquet": [f"--input={plain}"], "TFRecord": [f"--input={plain}", "--output_format=tfrecord"]},
            {"one file of JSONL": [f"--input={plain}"], "the same as .zst, one frame": [f"--input={plain}.zst"]},
            {
                "3,000 lines in one file": [f"--input={folder}/one.jsonl"],
                "3,000 lines in 3,000 files": [f"--input={many}"],
            },
        ]
        for pair in pairs:
            rounds = [
                [build([*common, *options], memory=False) for options in pair.values()] for _ in range(arguments.rounds)
            ]
            first, _ = builds = [median(of_form) for of_form in zip(*rounds, strict=True)]
            for name, built in zip(pair, builds, strict=True):
                times = [f"{built.seconds:.1f}", f"{built.cpu:.1f}"]
                ratios = [f"{built.seconds / first.seconds:.2f}", f"{built.cpu / first.cpu:.2f}"]
                rows.append([name, *times, f"{len(built.manifest['shards']):,}", *ratios])
    publish(
        "pairs",
        f"The same conversations of {arguments.input.stem} in two forms, 2 workers, medians of {arguments.rounds}",
        ["", "seconds", "CPU seconds", "shards", "seconds / first form", "CPU / first form"],
        rows,
    )


if __name__ == "__main__":
    main()
