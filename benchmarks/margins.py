"""Measure the CPU of further input, for each kind of corpus, next to raw tokenization and TRL.

    .venv/bin/python benchmarks/margins.py --corpora FOLDER --tokenizers FOLDER [--only sgd,kdconv-qwen] [--scale 0.1]

"At the margin": the CPU of a build of four times the input less that of once the input, so start-up is left out. Raw is
single-threaded `encode_batch_fast` on a sample of the texts that the build tokenizes, and TRL prepares the same sample,
also at the margin. All three are CPU seconds of all processes, so the number of cores does not matter.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from kinds import KINDS, Kind, changed, lines_of
from measure import build, peer, peers_templates, publish
from tokenizers import Tokenizer

from transforms.chat.config import RenderConfig
from transforms.model.batches import Slice, Split
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.read import read_split
from transforms.steps.render import Renderer

NOW = "2026-11-20T12:00:00"
SAMPLE = 800
HEADER = ["input", "template", "tokenizer", "tokens a record", "raw, µs", "Chatmill, µs", "x raw", "TRL, µs", "x TRL"]


class Margin(NamedTuple):
    """Microseconds of CPU for each record, and its tokens. TRL's are None if it cannot prepare such records."""

    tokens: float
    raw: float
    ours: float
    trl: float | None
    by_reference: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, required=True, help="folder of NAME.jsonl or NAME.jsonl.zst")
    parser.add_argument("--tokenizers", type=Path, required=True, help="folder of the folders llama3, qwen, mistral")
    parser.add_argument("--templates", type=Path, help="folder of NAME.jinja (default: those that TRL has)")
    parser.add_argument("--only", default="", help="the rows to measure, of all whose name begins so; are not stored")
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the inputs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of each build; the best counts (default: %(default)s)")
    parser.add_argument("--no-trl", action="store_true", help="leave TRL out")
    arguments = parser.parse_args()
    chosen = tuple(arguments.only.split(","))
    rows: list[list[str]] = []
    for kind in KINDS:
        if kind.name.startswith(chosen):
            start = time.monotonic()
            margin = measure(kind, arguments)
            rows.append([kind.title, kind.template or "its own", kind.tokenizer, *cells(margin)])
            note = f"{margin.by_reference:.0%} rendered by the reference, {time.monotonic() - start:.0f} s"
            print(kind.name, *rows[-1], note, sep=" | ", file=sys.stderr, flush=True)
    publish("margins", "CPU for each record at the margin, 2 workers", HEADER, rows, store=not arguments.only)


def cells(margin: Margin) -> list[str]:
    trl = ["", ""] if margin.trl is None else [f"{margin.trl:,.0f}", f"{margin.trl / margin.ours:.0f}"]
    times = [f"{margin.raw:,.0f}", f"{margin.ours:,.1f}", f"{margin.raw / margin.ours:.1f}"]
    return [f"{margin.tokens:,.0f}", *times, *trl]


def measure(kind: Kind, arguments: argparse.Namespace) -> Margin:
    lines = lines_of(kind, arguments.corpora, kind.megabytes * arguments.scale * 1e6)
    tokenizer = arguments.tokenizers / kind.tokenizer.partition(",")[0]
    templates = arguments.templates or peers_templates()
    template = templates / f"{kind.template}.jinja" if kind.template else tokenizer / "chat_template.jinja"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if change := kind.tokenizer.partition(", ")[2]:
            tokenizer = changed(tokenizer, change, folder / "tokenizer")
        inputs = {times: folder / f"{times}.jsonl" for times in (1, 4)}
        for times, path in inputs.items():
            path.write_bytes(b"".join(itertools.islice(itertools.cycle(lines), len(lines) * times)))
        sample = lines[:: -(-len(lines) // SAMPLE)]
        texts = texts_of(kind, sample, folder / "sample.jsonl", tokenizer, template)
        raw, tokens = raw_seconds(texts, tokenizer)
        cpu = {}
        for times, path in inputs.items():
            options = [f"--input={path}", f"--output={folder}/out", f"--tokenizer={tokenizer}", "--overwrite"]
            options += [
                f"--chat_template={template}",
                f"--now={NOW}",
                "--packing=bfd",
                f"--max_length={kind.max_length}",
            ]
            options += ["--unprinted=report", "--max_reject_fraction=1", "--direct_num_workers=2", *kind.options]
            builds = [build(options, memory=False) for _ in range(arguments.rounds)]
            cpu[times] = min(built.cpu for built in builds)
        manifest = builds[-1].manifest
        ours = (cpu[4] - cpu[1]) / (3 * len(lines))
        trl = None if arguments.no_trl or not kind.trl else trl_seconds(kind, sample, folder, tokenizer, template)
        by_reference = sum(manifest.get("rendered_by_reference", {}).values()) / manifest["records"]["read"]
    return Margin(tokens / len(sample), raw / len(sample) * 1e6, ours * 1e6, trl and trl * 1e6, by_reference)


def texts_of(kind: Kind, sample: Sequence[bytes], path: Path, tokenizer: Path, template: Path) -> list[str]:
    """Return the texts that a build tokenizes for a sample of records."""
    path.write_bytes(b"".join(sample))
    config = RenderConfig(
        tokenizer=str(tokenizer), chat_template=template.read_text(), now=NOW, unprinted="report", engine="reference"
    )
    split = Split(0, (Slice(str(path), "jsonl", None, 0, path.stat().st_size),))
    examples = Parser()(next(read_split(split, split.bytes)))
    texts = Renderer(config)(examples)
    if "--parity=expand" in kind.options:
        texts = ParityChecker(config, parity="expand")(texts)
    return [text.text for text in texts.texts]


def raw_seconds(texts: Sequence[str], tokenizer: Path) -> tuple[float, int]:
    """Return the CPU seconds of encode_batch_fast alone, the best of three rounds, and the number of tokens."""
    encoder = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        encodings = encoder.encode_batch_fast(texts, add_special_tokens=False)
        best = min(best, time.process_time() - start)
    return best, sum(len(encoding.ids) for encoding in encodings)


def trl_seconds(kind: Kind, sample: Sequence[bytes], folder: Path, tokenizer: Path, template: Path) -> float:
    """Return the CPU seconds of TRL for each record, at the margin: the whole sample less a quarter of it."""
    few, many = folder / "few.jsonl", folder / "many.jsonl"
    records = [json.loads(line) for line in sample]
    for record in records:  # one type for each column: lists of tools have many
        if "tools" in record:
            record["tools"] = json.dumps(record["tools"])
    encoded = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    few.write_text("".join(encoded[::4]))
    many.write_text("".join(encoded))
    _, less, more = peer("TRL", [few, few, many], tokenizer, workers=1, template=template)
    return (more["cpu"] - less["cpu"]) / (len(encoded) - len(encoded[::4]))


if __name__ == "__main__":
    main()
