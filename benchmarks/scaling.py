"""Measure seconds and peak memory of a build by workers, size of corpus and of tasks; ten lines show the start-up.

    .venv/bin/python benchmarks/scaling.py --input sgd.jsonl --tokenizer FOLDER [--workers 1,2,4] [--times 1,4,16]

Memory is the proportional set size (PSS) of the whole process tree, sampled every 100 ms.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

from measure import build, publish, repeated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="an uncompressed JSONL file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers (default: %(default)s)")
    parser.add_argument("--times", default="1,2,4,16", help="how often the corpus is repeated (default: %(default)s)")
    arguments = parser.parse_args()
    sizes, workers = ([int(number) for number in text.split(",")] for text in (arguments.times, arguments.workers))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.jsonl")
        with arguments.input.open("rb") as lines:
            small.write_bytes(b"".join(itertools.islice(lines, 10)))
        corpora = {times: repeated(arguments.input, times, Path(folder, f"{times}.jsonl")) for times in sizes}
        runs: list[tuple[Any, Path, int, Any]] = [
            ("10 lines", small, 1, ""),
            ("10 lines", small, 2, ""),
            *((times, corpora[times], 2, "") for times in sizes),
        ]
        runs += [(sizes[-2], corpora[sizes[-2]], count, "") for count in workers if count != 2]
        runs += [(sizes[-1], corpora[sizes[-1]], 2, mebibytes) for mebibytes in (4, 64)]
        for times, corpus, count, mebibytes in runs:
            options = [f"--input={corpus}", f"--tokenizer={arguments.tokenizer.resolve()}"]
            options += [f"--output={folder}/out", "--overwrite", "--packing=bfd", "--max_length=4096"]
            options += [f"--split_bytes={mebibytes << 20}"] if mebibytes else []
            built = build([*options, f"--direct_num_workers={count}"])
            size, tokens = corpus.stat().st_size / 1e6, built.manifest["tokens"]
            figures = [f"{size:,.3g}", f"{tokens:,}", f"{built.seconds:.1f}", f"{built.peak / 1e6:,.0f}"]
            rows.append([times, count, mebibytes, *figures])
    publish(
        "scaling",
        f"{arguments.input.stem}, repeated, with the tokenizer {arguments.tokenizer.name}",
        ["times", "workers", "MiB of a task", "MB of input", "tokens", "seconds", "peak MB"],
        rows,
    )


if __name__ == "__main__":
    main()
