"""Find what `chatmill inspect` shows: rows and rejects of a dataset, one after the other, with notes in between."""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from pipeline.show.exceptions import ADDED, Line, read_lines
from pipeline.show.rejects import print_reject, reject_as_json
from pipeline.show.rows import TOKEN_LISTS, RowReader, print_row, title
from pipeline.show.summary import overview
from pipeline.show.text import joined
from transforms.base.errors import UserError
from transforms.base.hidden import visible
from transforms.base.phrases import counted, did_you_mean
from transforms.dataset.reader import Dataset, FailedBuild
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.steps.checks import CHECKS, check_name

# What is shown: the list of the JSON document that it belongs to; and a row, a line of the exceptions (of a reject, or
# of another record without a row), or a note as a sentence.
Item: TypeAlias = tuple[str, Any]


def find(dataset: Dataset | FailedBuild, options: Namespace) -> Iterator[Item]:
    """Return what the options of `chatmill inspect` ask for: of a build that failed, rejects.

    Raises UserError if there is no such row, reject or record.
    """
    reader = RowReader(dataset) if isinstance(dataset, Dataset) else None
    if options.reject is not None:
        return _reject(dataset, options.reject)
    for option in ("reason", "check"):
        if (reason := getattr(options, option)) is not None:
            return _with_reason(dataset, reader, reason, options.limit, f"--{option}")
    assert isinstance(dataset, Dataset) and reader
    split = options.split or ("train" if dataset.shards("train") else "validation")
    if options.source is not None:
        source, position = options.source
        return _from_record(reader, split, source, position, options.limit)
    if options.search is not None:
        return _search(reader, split, options.search, options.limit)
    if options.sample is not None:
        count = dataset.row_count(split)
        numbers = sorted(random.Random(options.seed).sample(range(count), min(options.sample, count)))
        return (("rows", reader.row(number, split)) for number in numbers)
    row = "rows", reader.row(options.row or 0, split)
    return iter([row] if options.row is not None else [("notes", overview(dataset.manifest)), row])


def print_items(console: Console, items: Iterable[Item], options: Namespace) -> None:
    """Print items. options: of `chatmill inspect`."""
    for kind, item in items:
        if kind == "rows":
            print_row(console, item, options)
        elif kind == "rejects":
            print_reject(console, item, options.full)
        else:
            console.print(visible(item) if kind == "notes" else Text(_title(item), "bold"))


def items_as_json(items: Iterable[Item], tokens: bool) -> dict[str, list[Any]]:
    """Return all items, for JSON. tokens: whether each token of a row is listed."""
    document: dict[str, list[Any]] = {"rows": [], "rejects": [], "records": [], "notes": []}
    for kind, item in items:
        if kind == "rejects":
            item = reject_as_json(item)
        elif kind == "records":
            known = {name: value for name, value in item.items() if value is not None and name not in ADDED}
            item = known | ({"columns": _kept_columns(item)} if item["columns"] else {})
        elif kind == "rows" and not tokens:
            for example in item["examples"]:
                for name in TOKEN_LISTS:
                    del example[name]
        document[kind].append(item)
    return document


def _search(reader: RowReader, split: str, text: str, limit: int) -> Iterator[Item]:
    """Yield the first rows with an example whose decoded text has a text, and how many were found and searched."""
    if not reader.dataset.layout.has_ids:
        raise UserError("--search: the rows have no input_ids, so there is no text to search.")
    matches, rows = 0, reader.dataset.row_count(split)
    for _, first, batch in reader.dataset.rows(split, ["input_ids"]):
        # Lists that Arrow makes would take a second for each row group.
        ids = [np.from_dlpack(row.values).tolist() for row in batch.column("input_ids")]
        for number, decoded in enumerate(reader.decoder.texts(ids), first):
            if text not in decoded:
                continue
            row = reader.row(number, split)
            if not any(text in joined(example["text"]) for example in row["examples"]):  # it is in two of them
                continue
            if matches == limit:
                searched = f"of the first {number:,} of {rows:,}"
                yield "notes", f"{counted(limit, 'row')} shown, {searched}; --limit shows more."
                return
            matches += 1
            yield "rows", row
    yield "notes", f"{matches:,} of {rows:,} rows of {split} have it."


def _reject(dataset: Dataset | FailedBuild, number: int) -> Iterator[Item]:
    """Return a reject. number: among all of them, from 0."""
    for line in islice(read_lines(dataset, _is_reject), number, None):
        return iter([("rejects", line)])
    count = sum(1 for _ in read_lines(dataset, _is_reject))
    raise UserError(f"--reject {number}: the dataset has {count:,} rejects, numbered from 0.")


def _is_reject(line: Line) -> bool:
    return bool(line["outcome"] == "rejected")


def _with_reason(
    dataset: Dataset | FailedBuild, reader: RowReader | None, reason: str, limit: int, option: str
) -> Iterator[Item]:
    """Yield the first records that were rejected or dropped for a reason, or `truncated`, and how many there are.

    Of records that were kept although something was found, it is the name of a check, or `contaminated`.
    """
    if isinstance(dataset, FailedBuild):
        counts: dict[str, int] = Counter(line["reason"] for line in read_lines(dataset, _is_reject))
    else:
        records, notes = dataset.manifest["records"], dataset.manifest["notes"]
        others = {name: notes.get(name, 0) for name in ("contaminated", *CHECKS)}
        counts = Counter({"truncated": records["truncated"], **others}) + Counter(records["dropped"])
        counts += Counter(records["rejected"])
    if reason not in counts:
        known = ", ".join(f"{name} ({count:,})" for name, count in counts.items()) or "none"
        hint = did_you_mean(reason, list(counts))
        raise UserError(f"{option} {reason}: no record has it.{hint} The reasons are: {known}.")

    def has_it(line: Line) -> bool:
        if line["reason"] is not None:
            return bool(line["reason"] == reason)
        names = [check_name(each) or "contaminated" for each in (line["detail"] or "").splitlines()]
        is_first = line["tokens_lost"] is not None  # of the lines of the record
        return is_first and reason in (line["outcome"], *names)

    # Of a contaminated record, what was found says more than the row.
    shown = 0
    for item in islice(_records(dataset, has_it, None if reason == "contaminated" else reader), limit):
        shown += 1
        yield item
    if counts[reason] > shown:
        why = "--limit shows more" if shown == limit else "the others were left out by a later step, or are not listed"
        yield "notes", f"{shown:,} of {counts[reason]:,} records are shown; {why}."


def _from_record(reader: RowReader, split: str, source: str, position: int, limit: int) -> Iterator[Item]:
    """Yield the rejects and the rows of a record. source: the url of its file, or the end of it from a slash.

    Rows are of the split, if their own columns are searched and not the exceptions.
    """
    dataset = reader.dataset
    has_provenance = set(PROVENANCE_COLUMNS) <= set(dataset.layout.columns)

    def is_source(url: str) -> bool:
        return url == source or url.endswith(f"/{source}")

    def is_it(line: Line) -> bool:
        is_shown = line["row"] is None or not has_provenance  # otherwise it is in the rows
        return is_shown and line["origin_position"] == position and is_source(line["origin_file"])

    def rows() -> Iterator[Item]:
        for _, first, batch in dataset.rows(split, PROVENANCE_COLUMNS):
            files, positions = (batch.column(name) for name in PROVENANCE_COLUMNS)
            numbers = np.arange(first, first + len(batch))
            if dataset.layout.packed:
                numbers = numbers[pc.list_parent_indices(files)]
                files, positions = files.flatten(), positions.flatten()
            at = np.flatnonzero(pc.equal(positions, position))
            for number in dict.fromkeys(int(numbers[one]) for one in at if is_source(files[int(one)].as_py())):
                yield "rows", reader.row(number, split)

    items = chain(_records(dataset, is_it, reader), rows() if has_provenance else ())
    first_items = list(islice(items, limit + 1))
    yield from first_items[:limit]
    if len(first_items) > limit:
        yield "notes", f"{limit:,} are shown; --limit shows more."
    if not first_items:
        hint = (
            "A position is the byte at which a line begins, or the number of a record (from 0)."
            if has_provenance
            else "The dataset has no sources of rows. Build with --provenance to record them."
        )
        where = f" in {split} or the rejects" if has_provenance else ""
        raise UserError(f"--source {source}:{position}: nothing{where} comes from that record. {hint}")


def _records(
    dataset: Dataset | FailedBuild, is_wanted: Callable[[Line], bool], reader: RowReader | None
) -> Iterator[Item]:
    """The examples of the wanted lines of exceptions; the line itself if it has no row. reader: if rows are wanted."""
    for line in read_lines(dataset, is_wanted):
        if _is_reject(line):
            yield "rejects", line
        else:
            yield ("records", line) if line["row"] is None or not reader else ("rows", reader.example(line))


def _kept_columns(line: Line) -> dict[str, Any]:
    """The columns of its record that were kept."""
    return json.loads(line["columns"]) if line["columns"] else {}


def _title(line: Line) -> str:
    """A line of the exceptions about a record that has no row, or of which something was found."""
    what = line["outcome"] + (f" ({line['reason']})" if line["reason"] else "")
    return title(what, {**line, "columns": _kept_columns(line)})
