"""Measure each step alone, in one process, and compare it with a loop written by hand.

    .venv/bin/python benchmarks/steps.py --input sgd.jsonl --tokenizer FOLDER [--megabytes 8] [--rounds 5]

The best round counts. The first round also loads the tokenizer and traces the template.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from datetime import datetime
from pathlib import Path

from by_hand import by_hand
from measure import publish

from transforms.chat.config import RenderConfig
from transforms.model.batches import Slice, Task
from transforms.records.input_options import ParseOptions
from transforms.steps.content_checks import ContentChecker
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.read import read_task
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder
from transforms.steps.write import ShardWriter, WriteConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="an uncompressed JSONL file")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--megabytes", type=int, default=8, help="how much of the input is used (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    arguments = parser.parse_args()
    gc.disable()  # as in a worker, see transforms/steps/base.py
    task = Task(0, (Slice(str(arguments.input), "jsonl", None, 0, arguments.megabytes << 20),))
    best: dict[str, dict[str, float]] = {}
    for engine in ("reference", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            best[engine], hand, records, tokens = rounds(arguments, engine, task, folder)
    totals = {engine: sum(seconds.values()) for engine, seconds in best.items()}
    rows = [
        [
            step,
            *(f"{best[engine][step] / records * 1e6:.1f}" for engine in best),
            f"{seconds / totals['auto']:.0%}",
            f"{tokens / seconds / 1e6:.1f}",
            *([f"{hand[step] / records * 1e6:.1f}", f"{seconds / hand[step]:.1f}"] if step in hand else ["", ""]),
        ]
        for step, seconds in best["auto"].items()
    ]
    whole = [f"{total / records * 1e6:.1f}" for total in totals.values()]
    rows.append(["all", *whole, "100%", f"{tokens / totals['auto'] / 1e6:.1f}", "", ""])
    publish(
        f"steps-{arguments.tokenizer.name}",
        f"Microseconds of CPU per conversation, by step: {records:,} of {arguments.input.stem}, {tokens:,} tokens of "
        f"{arguments.tokenizer.name}, one process",
        [
            "step",
            "--engine reference",
            "--engine auto",
            "share of auto",
            "Mtok/s for each core",
            "by hand",
            "auto / by hand",
        ],
        rows,
    )


def rounds(
    arguments: argparse.Namespace, engine: str, task: Task, folder: str
) -> tuple[dict[str, float], dict[str, float], int, int]:
    """Return the best seconds of each step and of its loop by hand, and the numbers of records and of tokens."""
    tokenizer = str(arguments.tokenizer)
    now = datetime.now().isoformat()  # for templates that print the date
    config = RenderConfig(tokenizer=tokenizer, engine=engine, now=now)
    steps = {
        "parse": Parser(ParseOptions()),
        "check": ContentChecker(None),
        "render": Renderer(config),
        "parity": ParityChecker(config),
        "tokenize": Encoder(tokenizer, engine=engine),
        "label": build_labels,
        "pack": Packer(max_length=4096, packing="bfd"),
        "write": ShardWriter(WriteConfig(folder=folder)),
    }
    loops = by_hand(arguments.tokenizer, Path(folder, "by hand")) if engine == "auto" else {}
    best: dict[str, float] = {}
    hand: dict[str, float] = {}
    tokens = 0
    for _ in range(arguments.rounds if engine == "auto" else 2):
        start = time.process_time()
        batch = next(read_task(task, task.bytes))
        best["read"] = min(best.get("read", 1e9), time.process_time() - start)
        records = batch.outcomes.read
        for name, step in steps.items():
            if name in loops:
                start = time.process_time()
                loops[name](batch)
                hand[name] = min(hand.get(name, 1e9), time.process_time() - start)
            start = time.process_time()
            batch = step(batch)  # type: ignore[operator]
            best[name] = min(best.get(name, 1e9), time.process_time() - start)
            tokens = len(batch.ids) if name == "tokenize" else tokens  # type: ignore[attr-defined]
    return best, hand, records, tokens


if __name__ == "__main__":
    main()
