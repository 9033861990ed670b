"""Measure the CPU of further input, for each kind of corpus, next to raw tokenization and TRL.

    .venv/bin/python benchmarks/margins.py --corpora FOLDER --tokenizers FOLDER [--only sgd,kdconv-qwen] [--rounds 1]

"At the margin": the CPU of a build of four times the input less that of the first quarter of it, so start-up is left
out. Raw is single-threaded `encode_batch_fast` on a sample of the texts that the build tokenizes, which the tokenizer
has not seen before: it remembers what it encoded. TRL prepares a sample of the same records, also at the margin. All
three are CPU seconds of all processes, so the number of cores does not matter. A ratio is of one round, in which raw is
measured before, between and after both builds; the table has the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from kinds import KINDS, Kind, changed, for_trl, read_lines
from measure import build, peer, peers_templates, publish
from tokenizers import Tokenizer

from transforms.chat.config import RenderConfig
from transforms.model.batches import Slice, Task
from transforms.records.input_options import ParseOptions
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.read import read_task
from transforms.steps.render import Renderer

NOW = "2026-11-20T12:00:00"
SAMPLE, SAMPLE_BYTES = 800, 1.2e6  # records, at most, of the sample for raw and for TRL
HEADER = [
    "input", "template", "tokenizer", "tokens a record", "rendered, tokenized by the reference", "raw, µs",
    "Chatmill, µs", "Mtok/s for each core", "x raw", "of the rounds", "TRL, µs", "x TRL",
]  # fmt: skip


@dataclass
class Row:
    """A kind of input, and what was measured of it, in microseconds of CPU for each record.

    Args:
        kind: of input.
        tokenizer: its folder.
        template: the file of the chat template.
        sample: some records, each once.
        record_bytes: the size of a record. A sample's time for each byte, times this, is that for a record.
        tokens: of a record.
        raw: of each round.
        ours: of each round.
        by_reference: the fractions of the records that the reference rendered and tokenized, not the fast engine.
        trl: None if TRL cannot prepare such records, or was left out.
        trl_lacks_masks: whether TRL trains on the prompts, too.
    """

    kind: Kind
    tokenizer: Path
    template: Path
    sample: Sequence[bytes]
    record_bytes: float
    tokens: float = 0
    raw: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    by_reference: Sequence[float] = ()
    trl: float | None = None
    trl_lacks_masks: bool = False

    @property
    def ratios(self) -> list[float]:
        return [raw / ours for raw, ours in zip(self.raw, self.ours, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def trl_ratio(self) -> float | None:
        return self.trl / statistics.median(self.ours) if self.trl else None

    def cells(self) -> list[str]:
        kind, ratios = self.kind, self.ratios
        cells = [kind.title, kind.template or "its own", kind.tokenizer, f"{self.tokens:,.0f}"]
        cells += [", ".join(f"{share:.1%}" for share in self.by_reference), f"{statistics.median(self.raw):,.0f}"]
        ours = statistics.median(self.ours)
        cells += [f"{ours:,.1f}", f"{self.tokens / ours:.2f}", f"{self.ratio:.1f}"]
        cells += [f"{min(ratios):.1f}-{max(ratios):.1f}"]
        if not (self.trl and self.trl_ratio):
            return [*cells, "", ""]
        return [*cells, f"{self.trl:,.0f}{' without masks' * self.trl_lacks_masks}", f"{self.trl_ratio:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, required=True, help="folder of NAME.jsonl or NAME.jsonl.zst")
    parser.add_argument("--tokenizers", type=Path, required=True, help="folder of the folders llama3, qwen, mistral")
    parser.add_argument("--templates", type=Path, help="folder of NAME.jinja (default: those that TRL has)")
    parser.add_argument("--only", default="", help="the rows to measure, of all whose name begins so; are not stored")
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the inputs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--no-trl", action="store_true", help="leave TRL out")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if kind.name.startswith(tuple(arguments.only.split(",")))]
    with tempfile.TemporaryDirectory() as temporary:
        rows = []
        for kind in kinds:
            start = time.monotonic()
            rows.append(measure(kind, arguments, Path(temporary)))
            print(kind.name, *rows[-1].cells(), f"{time.monotonic() - start:.0f} s", sep=" | ", file=sys.stderr)
        if (of_trl := [row for row in rows if row.kind.trl]) and not arguments.no_trl:
            measure_trl(of_trl, Path(temporary))
    publish("margins", title(rows, arguments.rounds), HEADER, [row.cells() for row in rows], not arguments.only)


def title(rows: Sequence[Row], rounds: int) -> str:
    of_trl = [row.trl_ratio for row in rows if row.trl_ratio]
    text = f"CPU for each record at the margin, 2 workers, medians of {rounds} rounds. The least is "
    text += f"{min(row.ratio for row in rows):.1f} x raw"
    return f"{text} and {min(of_trl):.0f} x TRL" if of_trl else text


def measure(kind: Kind, arguments: argparse.Namespace, temporary: Path) -> Row:
    """Measure all but TRL. A changed tokenizer stays in the temporary folder."""
    tokenizer = own = arguments.tokenizers / kind.tokenizer.partition(",")[0]
    templates = arguments.templates or peers_templates()
    template = templates / f"{kind.template}.jinja" if kind.template else own / "chat_template.jinja"
    if change := kind.tokenizer.partition(", ")[2]:
        tokenizer = changed(own, change, temporary / kind.name)
    lines = read_lines(kind, arguments.corpora, 4 * kind.megabytes * arguments.scale * 1e6)
    less = len(lines) // 4
    further = lines[less:]  # what the larger input has more than the smaller one
    different = list(dict.fromkeys(further))  # the corpus is repeated
    share = min(2 * SAMPLE / len(different), 2 * SAMPLE_BYTES / size_of(different), 1)
    sample = different[:: int(1 / share)]
    row = Row(kind, tokenizer, template, sample[1::2], size_of(further) / len(further))
    with tempfile.TemporaryDirectory() as folder:
        texts, others = (message_texts(row, some, Path(folder, "sample.jsonl")) for some in (row.sample, sample[::2]))
        options = [f"--output={folder}/out", "--overwrite", f"--tokenizer={tokenizer}", f"--chat_template={template}"]
        options += [f"--now={NOW}", "--packing=bfd", f"--max_length={kind.max_length}", "--unprinted=report"]
        options += ["--max_reject_fraction=1", "--direct_num_workers=2", *kind.options]
        inputs = [Path(folder, name) for name in ("quarter.jsonl", "whole.jsonl")]
        for path, count in zip(inputs, (less, len(lines)), strict=True):
            path.write_bytes(b"".join(lines[:count]))
        for _ in range(arguments.rounds):
            raw, builds = [raw_of(row, texts, others)], []
            for path in inputs:
                builds.append(build([*options, f"--input={path}"], memory=False))
                raw.append(raw_of(row, texts, others))
            quarter, whole = builds
            row.raw.append(statistics.mean(raw))
            row.ours.append(per_record(row, whole.cpu - quarter.cpu, size_of(further)))
    counts = [whole.manifest[f"{work}_by_reference"] for work in ("rendered", "tokenized")]
    row.by_reference = [sum(of_work.values()) / whole.manifest["records"]["read"] for of_work in counts]
    return row


def raw_of(row: Row, texts: Sequence[str], others: Sequence[str]) -> float:
    """Return what `encode_batch_fast` takes for a record, after it has encoded other texts, which fills its cache."""
    encoder = Tokenizer.from_file(str(row.tokenizer / "tokenizer.json"))
    encoder.encode_batch_fast(others, add_special_tokens=False)
    start = time.process_time()
    encodings = encoder.encode_batch_fast(texts, add_special_tokens=False)
    seconds = time.process_time() - start
    row.tokens = per_record(row, sum(len(encoding.ids) for encoding in encodings), size_of(row.sample)) / 1e6
    return per_record(row, seconds, size_of(row.sample))


def size_of(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines))


def per_record(row: Row, seconds: float, size: int) -> float:
    """Return the microseconds of a record, from the seconds that some bytes took."""
    return seconds / size * row.record_bytes * 1e6


def message_texts(row: Row, records: Sequence[bytes], path: Path) -> list[str]:
    """Return the texts that a build tokenizes for some records, which are written to a file."""
    path.write_bytes(b"".join(records))
    template = row.template.read_text()
    config = RenderConfig(tokenizer=str(row.tokenizer), chat_template=template, now=NOW, unprinted="report")
    task = Task(0, (Slice(str(path), "jsonl", None, 0, path.stat().st_size),))
    texts = Renderer(config)(Parser(ParseOptions())(next(read_task(task, task.bytes))))
    if "--parity=expand" in row.kind.options:
        texts = ParityChecker(config, parity="expand")(texts)
    return [text.text for text in texts.texts]


def measure_trl(rows: Sequence[Row], folder: Path) -> None:
    """Measure TRL on the samples, all in one process: the whole sample less a quarter of it."""
    tasks = []
    for row in rows:
        encoded = [json.dumps(for_trl(json.loads(line)), ensure_ascii=False) + "\n" for line in row.sample]
        for name, some in {"quarter": encoded[::4], "whole": encoded}.items():
            file = folder / f"{row.kind.name}-{name}.jsonl"
            file.write_text("".join(some))
            tasks.append((file, row.tokenizer, row.template))
    # First another copy of the first file, for what a process does once. datasets does not read a known file again.
    warm = folder / "warm.jsonl"
    warm.write_bytes(tasks[0][0].read_bytes())
    _, *results = peer("TRL", [(warm, *tasks[0][1:]), *tasks], workers=1)
    for row, quarter, whole in zip(rows, results[::2], results[1::2], strict=True):
        row.trl = per_record(row, whole["cpu"] - quarter["cpu"], size_of(row.sample) - size_of(row.sample[::4]))
        row.trl_lacks_masks = not whole["masked"] and "text" not in json.loads(row.sample[0])


if __name__ == "__main__":
    main()
