"""A row of a dataset: its examples decoded, each with where it came from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, TypeAlias

from rich.console import Console
from rich.text import Text

from pipeline.show.exceptions import Line, read_lines
from pipeline.show.text import as_text, cut, joined, legend, within
from transforms.base.hidden import visible
from transforms.base.phrases import counted
from transforms.dataset.reader import READ_FORMAT, Dataset
from transforms.dataset.row_examples import RowExamples, find_examples
from transforms.outputs import ShardEntry, shard_stem
from transforms.rows import IGNORED
from transforms.rows.columns import OUTPUT_COLUMNS, PROVENANCE_COLUMNS
from transforms.tokens.decoding import TokenDecoder

# A row with its examples, as it is in JSON (docs/inspect.md) with --tokens.
Row: TypeAlias = dict[str, Any]

TOKEN_LISTS = ("input_ids", "labels", "token_texts")
# Characters of an example that are shown unless all of them are asked for; those around a text that was searched; and
# those before it, or before the first one that is trained on.
_SHOWN, _FOUND, _BEFORE = 1600, 480, 160
# Tokens of an example at the end of a build, and before its first one that is trained on.
_PREVIEW_TOKENS, _TOKENS_BEFORE = 64, 24


class RowReader:
    """Reads rows of a dataset.

    Args:
        dataset: that has them.
        most: how many tokens of an example are read, from near the first one that is trained on; None for all.

    Attributes:
        dataset: the same.
        decoder: of its tokens.
    """

    def __init__(self, dataset: Dataset, most: int | None = None):
        self.dataset = dataset
        self.decoder = TokenDecoder.load(dataset.tokenizer_folder)
        self._most = most

    def row(self, number: int, split: str) -> Row:
        """Read a row. number: in the split, from 0. Raises UserError if there is no such row."""
        return self._read(*self.dataset.locate(number, split))

    def example(self, line: Line) -> Row:
        """Read the row that a line of exceptions is about, with the one example that it is about."""
        shards = self.dataset.readable(line["split"])
        shard = next(each for each in shards if shard_stem(each["path"]) == line["shard"])
        return self._read(shard, line["row"], line["segment"])

    def _read(self, shard: ShardEntry, in_shard: int, segment: int | None = None) -> Row:
        """Read a row of a shard: all of its examples, or one."""
        dataset, layout = self.dataset, self.dataset.layout
        shards = dataset.readable(shard["split"])
        number = sum(other["rows"] for other in shards[: shards.index(shard)]) + in_shard
        row = {"split": shard["split"], "row": number, "shard": shard["path"], "row_in_shard": in_shard, "examples": []}
        if not layout.has_ids:
            return row | {"note": "The rows have no input_ids, so there is no text to show."}
        values = dataset.read_row(shard, in_shard)
        examples = find_examples(values, layout)
        lines: Mapping[int, Line] = {}
        if not layout.has_segments:
            row["note"] = (
                "The rows have neither seq_lengths nor position_ids, so the examples are not shown separately."
            )
        else:
            if "labels" not in values and ("loss_mask" not in values or layout.shift_labels):
                row["note"] = "The rows have no labels, so what is trained on is not shown."
            at = shard["split"], in_shard
            about = read_lines(dataset, lambda line: (line["split"], line["row"]) == at, shard["path"])
            lines = {line["segment"]: line for line in about}
        others = {name: value for name, value in values.items() if name not in OUTPUT_COLUMNS}
        count = len(examples.offsets) - 1
        for each in range(count) if segment is None else range(count)[segment : segment + 1]:
            own = {
                name: value[each] if isinstance(value, list) and len(value) == count else value
                for name, value in others.items()
            }
            row["examples"].append(self._describe(examples, each, own, lines.get(each)))
        return row

    def _describe(self, row: RowExamples, number: int, own: dict[str, Any], line: Line | None) -> dict[str, Any]:
        """Describe an example. own: its values of columns that are not of tokens. line: of the exceptions about it."""
        start, stop = row.offsets[number : number + 2].tolist()
        if self._most:
            start = max(start + int(row.trained[start:stop].argmax()) - _TOKENS_BEFORE, start)
            stop = min(start + self._most, stop)
        tokens = slice(start, stop)
        ids, labels = row.ids[tokens], row.labels[tokens]
        origin = {name: own.pop(name, None) for name in PROVENANCE_COLUMNS}
        described: dict[str, Any] = {}
        if line:
            described |= {name: line[name] for name in PROVENANCE_COLUMNS}
            described |= {"detail": line["detail"]} if line["detail"] else {}
        elif isinstance(origin["origin_file"], str):
            described |= origin
        if own:
            described["columns"] = own
        if line and line["tokens_lost"]:
            described |= {name: line[name] or 0 for name in ("tokens_lost", "trained_tokens_lost")}
        trained = labels != IGNORED
        described |= {"tokens": len(ids), "trained_tokens": int(trained.sum())}
        decoded = self.decoder.decode(ids)
        spans = list(zip(decoded.starts.tolist(), decoded.stops.tolist(), strict=True))
        kinds = [0] * len(ids) if row.kinds is None else row.kinds[tokens].tolist()
        marked = zip(spans, trained.tolist(), kinds, strict=True)
        described["text"] = cut(decoded.text, ((*span, is_trained, kind) for span, is_trained, kind in marked))
        texts = [decoded.text[start:stop] for start, stop in spans]
        return described | dict(zip(TOKEN_LISTS, (ids.tolist(), labels.tolist(), texts), strict=True))


def print_row(console: Console, row: Row, options: Namespace) -> None:
    """Print the tokens of each example, or its text from near what is trained on first.

    options: of `chatmill inspect`. If a text is searched, the examples that have it are printed, from near the text.
    """
    console.print(Text(f"row {row['row']:,} of {row['split']} ({row['shard']}, row {row['row_in_shard']:,})", "bold"))
    if "note" in row:
        console.print(Text(row["note"], "yellow"))
    if any("part" in piece for example in row["examples"] for piece in example["text"]):
        console.print(legend())
    for number, example in enumerate(row["examples"], 1):
        pieces = example["text"]
        text = joined(pieces)
        if options.search and options.search not in text:
            continue
        heading = f"example {number:,} of {len(row['examples']):,}: " if len(row["examples"]) > 1 else ""
        heading += f"{counted(example['tokens'], 'token')}, {example['trained_tokens']:,} trained on"
        console.print(Text(f"── {title(heading, example)}", "bold"))
        if options.tokens:
            console.print(_token_list(example))
            continue
        starts = accumulate((len(piece["text"]) for piece in pieces), initial=0)
        first = next((start for start, piece in zip(starts, pieces, strict=False) if piece["trained"]), 0)
        start = max((text.index(options.search) if options.search else first) - _BEFORE, 0)
        stop = min(start + (_FOUND if options.search else _SHOWN), len(text))
        if options.full:
            start, stop = 0, len(text)
        if start:
            console.print(Text(f"… {counted(start, 'character')} before this; inspect --full shows all", "yellow"))
        printed = as_text(within(pieces, start, stop))
        printed.highlight_words([visible(options.search)] if options.search else [], "reverse")
        console.print(printed)
        if left := len(text) - stop:
            console.print(Text(f"… {counted(left, 'character')} after this; inspect --full shows all", "yellow"))
    console.print()


def title(what: str, known: Mapping[str, Any]) -> str:
    """Return what it is, and what is known of its record, in one line. known: as JSON has it."""
    parts = [what, *(known.get("detail") or "").splitlines()]
    if "origin_file" in known:
        parts.append(f"{known['origin_file']}:{known['origin_position']}")
    parts += [f"{name}: {value}" for name, value in known.get("columns", {}).items()]
    if lost := known.get("tokens_lost"):
        to_train = f"{known['trained_tokens_lost']:,} of them to train on"
        parts.append(f"{counted(lost, 'token')} of the record in no row, {to_train}")
    return visible("; ".join(parts))


def print_preview(console: Console, dataset: Dataset) -> None:
    """Print the first example of a dataset, from near the first token that is trained on, for a summary of a build."""
    split = "train" if dataset.shards("train") else "validation"
    if not dataset.shards(split, READ_FORMAT):
        return
    for example in RowReader(dataset, _PREVIEW_TOKENS).row(0, split)["examples"][:1]:
        if example["trained_tokens"]:
            console.print("\nThe first example, near its first trained token (⟦ ⟧; chatmill inspect has more):")
            # Line breaks would take most of the screen: a template prints several for each turn.
            console.print(as_text(piece | {"text": piece["text"].replace("\n", "↵")} for piece in example["text"]))


def _token_list(example: Mapping[str, Any]) -> Text:
    """A line for each token: its id, its label and its text."""
    lines = Text(f"{'id':>8} {'label':>8}  token\n", "bold")
    for id, label, text in zip(*(example[name] for name in TOKEN_LISTS), strict=True):
        in_line, is_trained = visible(text).replace("\n", "\\n").replace("\t", "\\t"), label != IGNORED
        lines.append(f"{id:8} {label:8}  ", "not bold dim")
        lines.append(f"⟦{in_line}⟧\n" if is_trained else f"{in_line}\n", "bold green" if is_trained else "not bold")
    lines.rstrip()
    return lines
