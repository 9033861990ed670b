"""Measure from JSONL to packed, masked Parquet, and compare with other tools on the same corpus in the same run.

    .venv/bin/python benchmarks/throughput.py --input sgd.jsonl --tokenizer FOLDER [--workers 2] [--rounds 2]

For Chatmill, the whole command is measured. "At the margin" is the cost of further input: 16 times the corpus minus 2
times the corpus. The seconds of the other tools do not include imports and the loading of the tokenizer. The best round
counts, because other load can make a machine slower but never faster.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from measure import build, peer, publish, repeated

ROWS = ("--packing=bfd", "--max_length=4096")
PEERS = "gigatoken,encode_batch_fast,datatrove,TRL,datasets.map"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--input",
        type=Path,
        required=True,
        help="an uncompressed JSONL file of messages, or of prompt and completion",
    )
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--workers", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--peers", default=PEERS, help="the other tools (default: %(default)s)")
    arguments = parser.parse_args()
    corpus, tokenizer = arguments.input.resolve(), arguments.tokenizer.resolve()
    best: dict[str, tuple[float, int]] = {}

    def keep(name: str, seconds: float, tokens: int) -> None:
        best[name] = min(best.get(name, (seconds, tokens)), (seconds, tokens))

    with tempfile.TemporaryDirectory() as folder:
        corpora = {times: repeated(corpus, times, Path(folder, f"{times}.jsonl")) for times in (2, 16)}
        for _ in range(arguments.rounds):
            for times, path in corpora.items():
                options = [
                    f"--input={path}",
                    f"--tokenizer={tokenizer}",
                    f"--output={folder}/out",
                    "--overwrite",
                    *ROWS,
                ]
                built = build([*options, f"--direct_num_workers={arguments.workers}"], memory=False)
                keep(f"Chatmill, {times} times the corpus", built.seconds, built.manifest["tokens"])
            for name in filter(None, arguments.peers.split(",")):
                (result,) = peer(name, [(corpus, tokenizer, None)], arguments.workers)
                keep(name, result["seconds"], result["tokens"])
    (few_seconds, few), (many_seconds, many) = (best[f"Chatmill, {times} times the corpus"] for times in (2, 16))
    rows = {"Chatmill, at the margin": (many_seconds - few_seconds, many - few)} | best
    rates = {name: tokens / seconds for name, (seconds, tokens) in rows.items()}
    publish(
        f"throughput-{corpus.stem}-{arguments.tokenizer.name}",
        f"{corpus.stem} with the tokenizer {arguments.tokenizer.name}, {arguments.workers} workers",
        ["", "tokens", "seconds", "Mtok/s", "Mtok/s for each core", "x encode_batch_fast", "x TRL"],
        [
            [
                name,
                f"{tokens:,}",
                f"{seconds:.1f}",
                f"{rates[name] / 1e6:.2f}",
                f"{rates[name] / 1e6 / arguments.workers:.2f}",
                *(f"{rates[name] / rates[peer]:.1f}" if peer in rates else "" for peer in ("encode_batch_fast", "TRL")),
            ]
            for name, (seconds, tokens) in rows.items()
        ],
    )


if __name__ == "__main__":
    main()
