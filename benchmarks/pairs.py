"""Measure the same conversations in two forms: as TFRecord and Parquet, compressed and not, in many files and in one.

    .venv/bin/python benchmarks/pairs.py --input sgd.jsonl --tokenizer FOLDER [--rounds 2]

The whole command is measured, with two workers. The best round counts.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import zstandard
from measure import Build, build, publish, repeated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="an uncompressed JSONL file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--rounds", type=int, default=2, help="(default: %(default)s)")
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
        forms = {
            "Parquet": [f"--input={plain}"],
            "TFRecord": [f"--input={plain}", "--output_format=tfrecord"],
            "one file of JSONL": [f"--input={plain}"],
            "the same as .zst, one frame": [f"--input={plain}.zst"],
            "3,000 lines in one file": [f"--input={folder}/one.jsonl"],
            "3,000 lines in 3,000 files": [f"--input={many}"],
        }
        first: Build | None = None
        for number, (name, options) in enumerate(forms.items()):
            builds = [build([*common, *options], memory=False) for _ in range(arguments.rounds)]
            best = Build(min(b.seconds for b in builds), min(b.cpu for b in builds), 0, builds[0].manifest)
            first = best if number % 2 == 0 or first is None else first
            times = [f"{best.seconds:.1f}", f"{best.cpu:.1f}"]
            ratios = [f"{best.seconds / first.seconds:.2f}", f"{best.cpu / first.cpu:.2f}"]
            rows.append([name, *times, f"{len(best.manifest['shards']):,}", *ratios])
    publish(
        "pairs",
        f"The same conversations of {arguments.input.stem} in two forms, 2 workers",
        ["", "seconds", "CPU seconds", "shards", "seconds / first form", "CPU / first form"],
        rows,
    )


if __name__ == "__main__":
    main()
