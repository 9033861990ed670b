"""A row of a dataset: its examples decoded, each with where it came from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from pipeline.show.exceptions import Line, read_lines
from pipeline.show.text import Mark, Marked, as_text, legend, mark, shown_tokens, visible
from transforms.base.phrases import counted
from transforms.dataset.reader import READ_FORMAT, Dataset
from transforms.dataset.row_examples import examples_of
from transforms.outputs import ShardEntry, stem_of
from transforms.rows import IGNORED
from transforms.rows.columns import OUTPUT_COLUMNS, PROVENANCE_COLUMNS
from transforms.rows.parts import KINDS
from transforms.tokens.decoding import Decoded, TokenDecoder

# Tokens of an example that are shown unless all of them are asked for: of a row, around a text that was searched, and
# at the end of a build.
_TOKENS_SHOWN, _TOKENS_FOUND, _TOKENS_OF_PREVIEW = 400, 120, 80


@dataclass(frozen=True)
class Example:
    """An example of a row.

    Attributes:
        ids, labels: int32, shape (tokens,).
        kinds: int8, shape (tokens,): the part of a turn that each token is, as a number of KINDS; 0 if the rows do not
            say it.
        origin: the source and the position of its record, if the dataset has them.
        kept: the columns of its record that were kept.
        lost: how many tokens of its record are in no row, and how many of them would have been trained on.
    """

    ids: np.ndarray
    labels: np.ndarray
    kinds: np.ndarray
    origin: tuple[str, int] | None
    kept: Mapping[str, Any]
    lost: tuple[int, int]

    @property
    def trained(self) -> np.ndarray:
        """Whether each token is trained on: bool, shape (tokens,)."""
        return self.labels != IGNORED

    @property
    def title(self) -> str:
        """The number of tokens, and what is known of the record, in one line."""
        tokens = f"{counted(len(self.ids), 'token')}, {int(self.trained.sum()):,} trained on"
        known = [f"{self.origin[0]}:{self.origin[1]}"] if self.origin else []
        known += [f"{name}: {value}" for name, value in self.kept.items()]
        if self.lost[0]:
            known.append(
                f"{counted(self.lost[0], 'token')} of the record in no row, {self.lost[1]:,} of them to train on"
            )
        return visible("; ".join([tokens, *known]))


@dataclass(frozen=True)
class Row:
    """A row of a dataset.

    Attributes:
        split, number: its number in its split, from 0.
        shard, in_shard: the path of its shard, and its number there, from 0.
        examples: one, or several if it is packed; none if the rows have no input_ids.
        note: what its columns do not say, as a sentence; empty if they say all.
    """

    split: str
    number: int
    shard: str
    in_shard: int
    examples: list[Example]
    note: str

    @property
    def title(self) -> str:
        """Where the row is, in one line."""
        return f"row {self.number:,} of {self.split} ({self.shard}, row {self.in_shard:,})"


def read_row(dataset: Dataset, number: int, split: str) -> Row:
    """Read a row. number: in the split, from 0. Raises UserError if there is no such row."""
    return _read_row_of_shard(dataset, *dataset.locate(number, split))


def read_example(dataset: Dataset, line: Line) -> Row:
    """Read the row that a line of exceptions is about, with the one example that it is about."""
    [shard] = (each for each in dataset.readable(line["split"]) if stem_of(each["path"]) == line["shard"])
    row = _read_row_of_shard(dataset, shard, line["row"])
    return replace(row, examples=row.examples[line["segment"] :][:1])


def _read_row_of_shard(dataset: Dataset, shard: ShardEntry, in_shard: int) -> Row:
    values = dataset.read_row(shard, in_shard)
    shards = dataset.readable(shard["split"])
    number = sum(other["rows"] for other in shards[: shards.index(shard)]) + in_shard
    place = shard["split"], number, shard["path"], in_shard
    if not dataset.layout.has_ids:
        return Row(*place, [], "The rows have no input_ids, so there is no text to show.")
    found = examples_of(values, dataset.layout)
    note = ""
    if not dataset.layout.has_segments:
        note = "The rows have neither seq_lengths nor position_ids, so the examples are not shown separately."
    elif "labels" not in values and ("loss_mask" not in values or dataset.layout.shift_labels):
        note = "The rows have no labels, so what is trained on is not shown."
    others = {name: value for name, value in values.items() if name not in OUTPUT_COLUMNS}
    lines: Mapping[int, Line] = {}
    if dataset.layout.has_segments:
        at = shard["split"], in_shard
        about = read_lines(dataset, lambda line: (line["split"], line["row"]) == at, shard["path"])
        lines = {line["segment"]: line for line in about}
    examples, count = [], len(found.offsets) - 1
    kinds = np.zeros(len(found.ids), np.int8) if found.kinds is None else found.kinds
    for segment, (start, stop) in enumerate(pairwise(found.offsets.tolist())):
        own = {
            name: value[segment] if isinstance(value, list) and len(value) == count else value
            for name, value in others.items()
        }
        file, position = (own.pop(name, None) for name in PROVENANCE_COLUMNS)
        origin, lost = (file, position) if isinstance(file, str) else None, (0, 0)
        if line := lines.get(segment):
            origin = line["origin_file"], line["origin_position"]
            lost = line["tokens_lost"] or 0, line["trained_tokens_lost"] or 0
        ids, labels = found.ids[start:stop], found.labels[start:stop]
        examples.append(Example(ids, labels, kinds[start:stop], origin, own, lost))
    return Row(*place, examples, note)


def print_row(console: Console, row: Row, decoder: TokenDecoder, options: Namespace) -> None:
    """Print the text or the tokens of each example, from near the first that is trained on.

    options: of `chatmill inspect`. If a text is searched, the examples that have it are printed, from near the text.
    """
    search = options.search or ""
    limit = None if options.full else _TOKENS_FOUND if search else _TOKENS_SHOWN
    console.print(Text(row.title, "bold"))
    if row.note:
        console.print(Text(row.note, "yellow"))
    if any(example.kinds.any() for example in row.examples):
        console.print(legend())
    for number, example in enumerate(row.examples):
        decoded = decoder.decode(example.ids)
        near = example.trained
        if search:
            if (found := decoded.text.find(search)) < 0:
                continue
            near = (decoded.starts <= found) & (found < decoded.stops)
        heading = f"example {number + 1:,} of {len(row.examples):,}: " if len(row.examples) > 1 else ""
        console.print(Text(f"── {heading}{example.title}", "bold"))
        shown = shown_tokens(near, limit)
        if shown.start:
            console.print(Text(f"… {counted(shown.start, 'token')} before this; inspect --full shows all", "yellow"))
        if options.tokens:
            console.print(_token_list(example, decoded, shown))
        else:
            start = int(decoded.starts[shown.start]) if shown.start else 0
            stop = int(decoded.stops[shown.stop - 1]) if shown.stop else 0
            text = as_text(_mark(example, decoded, decoder.is_added(example.ids))[start:stop])
            if search:
                text.highlight_words([visible(search)], "reverse")
            console.print(text)
        if left := len(near) - shown.stop:
            console.print(Text(f"… {counted(left, 'token')} after this; inspect --full shows all", "yellow"))
    console.print()


def _mark(example: Example, decoded: Decoded, special: np.ndarray) -> Marked:
    """Mark the text of an example. A character of several tokens is trained on if one of them is."""
    marks = map(Mark, example.trained.tolist(), special.tolist(), example.kinds.tolist())
    return mark(decoded.text, zip(decoded.starts.tolist(), decoded.stops.tolist(), marks, strict=True))


def print_preview(console: Console, dataset: Dataset) -> None:
    """Print the first example of a dataset, from near the first token that is trained on, for a summary of a build."""
    split = "train" if dataset.shards("train") else "validation"
    if not dataset.shards(split, READ_FORMAT):
        return
    example = next(iter(read_row(dataset, 0, split).examples), None)
    if example is None or not example.trained.any():
        return
    shown = shown_tokens(example.trained, _TOKENS_OF_PREVIEW)
    example = replace(example, **{name: getattr(example, name)[shown] for name in ("ids", "labels", "kinds")})
    decoder = TokenDecoder.load(dataset.tokenizer_folder)
    marked = _mark(example, decoder.decode(example.ids), decoder.is_added(example.ids))
    console.print("\nThe first example, near its first trained token (⟦ ⟧; chatmill inspect has more):")
    # Line breaks would take most of the screen: a template prints several for each turn.
    console.print(as_text(replace(marked, text=marked.text.replace("\n", "↵"))))
    console.print()


def _token_list(example: Example, decoded: Decoded, shown: slice) -> Text:
    """A line for each token: its id, its label and its text, of a part of a character the bytes."""
    ids, labels, trained = example.ids[shown], example.labels[shown], example.trained[shown]
    lines = Text(f"{'id':>8} {'label':>8}  token\n", "bold")
    for id, label, text, is_trained in zip(
        ids.tolist(), labels.tolist(), _texts(decoded)[shown], trained.tolist(), strict=True
    ):
        in_line = visible(text).replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f"{id:8} {label:8}  ", "not bold dim")
        lines.append(f"⟦{in_line}⟧\n" if is_trained else f"{in_line}\n", "bold green" if is_trained else "not bold")
    lines.rstrip()
    return lines


def _texts(decoded: Decoded) -> list[str]:
    return [decoded.text[start:stop] for start, stop in zip(decoded.starts, decoded.stops, strict=True)]


def row_as_json(row: Row, decoder: TokenDecoder, tokens: bool = False) -> dict[str, Any]:
    """Return all of a row, for JSON. tokens: whether to add the ids, the labels and the text of each token."""
    examples = []
    for example in row.examples:
        described: dict[str, Any] = {}
        if example.origin:
            described |= zip(PROVENANCE_COLUMNS, example.origin, strict=True)
        if example.kept:
            described["columns"] = dict(example.kept)
        if example.lost[0]:
            described |= zip(("tokens_lost", "trained_tokens_lost"), example.lost, strict=True)
        described |= {"tokens": len(example.ids), "trained_tokens": int(example.trained.sum())}
        decoded = decoder.decode(example.ids)
        described["text"] = [
            {"text": text, "trained": found.trained} | ({"part": KINDS[found.kind]} if example.kinds.any() else {})
            for text, found in _mark(example, decoded, np.zeros(len(example.ids), bool)).pieces()
        ]
        if tokens:
            described |= {"input_ids": example.ids.tolist(), "labels": example.labels.tolist()}
            described["token_texts"] = _texts(decoded)
        examples.append(described)
    place = {"split": row.split, "row": row.number, "shard": row.shard, "row_in_shard": row.in_shard}
    return {**place, "examples": examples, **({"note": row.note} if row.note else {})}
