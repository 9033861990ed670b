"""Find what `chatmill inspect` shows: rows and rejects of a dataset, one after the other, with notes in between."""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from pipeline.show.exceptions import ADDED, Line, read_lines
from pipeline.show.rejects import print_reject, reject_as_json
from pipeline.show.rows import Row, print_row, read_example, read_row, row_as_json
from pipeline.show.text import visible
from transforms.base.errors import UserError
from transforms.base.phrases import counted, did_you_mean, most_of
from transforms.dataset.layout import SPLITS
from transforms.dataset.reader import Dataset, FailedBuild
from transforms.dataset.row_examples import examples_of
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.tokens.decoding import TokenDecoder

# What is shown: a row, a line of the exceptions about a record without a row, or a note as a sentence.
Found: TypeAlias = Row | Line | str

_TOKEN_COLUMNS = ("input_ids", "seq_lengths", "position_ids")


def find(dataset: Dataset | FailedBuild, decoder: TokenDecoder, options: Namespace) -> Iterator[Found]:
    """Return what the options of `chatmill inspect` ask for: of a build that failed, rejects.

    Raises UserError if there is no such row, reject or record.
    """
    if options.reject is not None:
        return _reject(dataset, options.reject)
    if options.reason is not None:
        return _with_reason(dataset, options.reason, options.limit)
    assert isinstance(dataset, Dataset)
    split = options.split or ("train" if dataset.shards("train") else "validation")
    if options.row is not None:
        return iter([read_row(dataset, options.row, split)])
    if options.source is not None:
        source, position = options.source
        return _from_record(dataset, split, source, position, options.limit)
    if options.sample is not None:
        return _sample(dataset, split, options.sample, options.seed)
    if options.search is not None:
        return _search(dataset, decoder, split, options.search, options.limit)
    return iter([_overview(dataset), read_row(dataset, 0, split)])


def print_found(console: Console, item: Found, decoder: TokenDecoder, options: Namespace) -> None:
    """Print a row, a line or a note. options: of `chatmill inspect`."""
    if isinstance(item, Row):
        print_row(console, item, decoder, options)
    elif isinstance(item, str):
        console.print(visible(item))
    elif _is_reject(item):
        print_reject(console, item, options.full)
    else:
        console.print(Text(visible(_title(item)), "bold"))


def found_as_json(found: Iterator[Found], decoder: TokenDecoder, tokens: bool) -> dict[str, list[Any]]:
    """Return all that was found, for JSON. tokens: whether each token of a row is listed."""
    document: dict[str, list[Any]] = {"rows": [], "rejects": [], "records": [], "notes": []}
    for item in found:
        if isinstance(item, Row):
            document["rows"].append(row_as_json(item, decoder, tokens))
        elif isinstance(item, str):
            document["notes"].append(item)
        elif _is_reject(item):
            document["rejects"].append(reject_as_json(item))
        else:
            known = {name: value for name, value in item.items() if value is not None and name not in ADDED}
            document["records"].append(known | ({"columns": _kept(item)} if item["columns"] else {}))
    return document


def _overview(dataset: Dataset) -> str:
    """What a dataset holds, in one line."""
    manifest = dataset.manifest
    records = manifest["records"]
    splits = {split: dataset.row_count(split) for split in SPLITS if dataset.shards(split)}
    rows = " and ".join(f"{counted(rows, 'row')} of {split}" for split, rows in splits.items()) or "no rows"
    lost = [
        f"{sum(reasons.values()):,} {outcome} ({most_of(reasons, len(reasons))})"
        for outcome in ("dropped", "rejected")
        if (reasons := records[outcome])
    ]
    shape = f"packed ({dataset.layout.packing})" if dataset.layout.packed else "not packed"
    longest = dataset.layout.max_length
    limit = "" if longest is None else f", at most {longest:,} tokens each"
    share = manifest["trained_tokens"] / max(manifest["tokens"], 1)  # all increments may have failed
    return "; ".join([
        f"{rows}, {shape}{limit}", f"{manifest['tokens']:,} tokens, {share:.1%} trained on",
        f"{counted(records['read'], 'record')} read", *lost,
    ])  # fmt: skip


def _sample(dataset: Dataset, split: str, count: int, seed: int) -> Iterator[Found]:
    """Yield some rows of a split, drawn at random, in order."""
    rows = dataset.row_count(split)
    for number in sorted(random.Random(seed).sample(range(rows), min(count, rows))):
        yield read_row(dataset, number, split)


def _search(dataset: Dataset, decoder: TokenDecoder, split: str, text: str, limit: int) -> Iterator[Found]:
    """Yield the first rows with an example whose decoded text has a text, and how many were found and searched."""
    columns = [name for name in _TOKEN_COLUMNS if name in dataset.layout.columns]
    if not dataset.layout.has_ids:
        raise UserError("--search: the rows have no input_ids, so there is no text to search.")
    found, rows = 0, dataset.row_count(split)
    for _, first, batch in dataset.rows(split, columns):
        # Through Python numbers it would take a second for each row group.
        lists = [
            {name: np.from_dlpack(batch.column(name)[row].values) for name in columns} for row in range(len(batch))
        ]
        examples = [examples_of(values, dataset.layout) for values in lists]
        ids = [of_example.tolist() for row in examples for of_example in np.split(row.ids, row.offsets[1:-1])]
        texts = iter(decoder.texts(ids))
        for number, row in enumerate(examples, first):
            of_row = [*islice(texts, len(row.offsets) - 1)]
            if not any(text in each for each in of_row):
                continue
            if found == limit:
                yield f"{counted(limit, 'row')} shown, of the first {number:,} of {rows:,}; --limit shows more."
                return
            found += 1
            yield read_row(dataset, number, split)
    yield f"{found:,} of {rows:,} rows of {split} have it."


def _reject(dataset: Dataset | FailedBuild, number: int) -> Iterator[Found]:
    """Yield a reject. number: among all of them, from 0."""
    count = 0
    for line in read_lines(dataset, _is_reject):
        if line["number"] == number:
            yield line
            return
        count += 1
    raise UserError(f"--reject {number}: the dataset has {count:,} rejects, numbered from 0.")


def _is_reject(line: Line) -> bool:
    return bool(line["outcome"] == "rejected")


def _with_reason(dataset: Dataset | FailedBuild, reason: str, limit: int) -> Iterator[Found]:
    """Yield the first records that were rejected or dropped for a reason, or `truncated`, and how many there are.

    Of records that were kept although they share a text with evaluation sets, it is `contaminated`.
    """
    if isinstance(dataset, FailedBuild):
        counts: dict[str, int] = Counter(line["reason"] for line in read_lines(dataset, _is_reject))
    else:
        records, notes = dataset.manifest["records"], dataset.manifest["notes"]
        others = {"truncated": records["truncated"], "contaminated": notes.get("contaminated", 0)}
        counts = {**records["rejected"], **records["dropped"]} | {name: n for name, n in others.items() if n}
    if reason not in counts:
        known = ", ".join(f"{name} ({count:,})" for name, count in counts.items()) or "none"
        hint = did_you_mean(reason, list(counts))
        raise UserError(f"--reason {reason}: no record has it.{hint} The reasons are: {known}.")

    def has_it(line: Line) -> bool:
        if line["reason"] is not None:
            return bool(line["reason"] == reason)
        is_it = line["outcome"] == reason or (reason == "contaminated" and line["detail"] is not None)
        return is_it and line["tokens_lost"] is not None  # the first line of the record

    # Of a contaminated record, what was found says more than the row.
    yield from islice(_records(dataset, has_it, with_rows=reason != "contaminated"), limit)
    if counts[reason] > limit:
        yield f"{limit:,} of {counts[reason]:,} records are shown; --limit shows more."


def _from_record(dataset: Dataset, split: str, source: str, position: int, limit: int) -> Iterator[Found]:
    """Yield the rejects and the rows of a record. source: the url of its file, or the end of it from a slash.

    Rows are of the split, if their own columns are searched and not the exceptions.
    """
    has_provenance = set(PROVENANCE_COLUMNS) <= set(dataset.layout.columns)

    def is_source(url: str) -> bool:
        return url == source or url.endswith(f"/{source}")

    def is_it(line: Line) -> bool:
        is_shown = line["row"] is None or not has_provenance  # otherwise it is in the rows
        return is_shown and line["origin_position"] == position and is_source(line["origin_file"])

    def rows() -> Iterator[Row]:
        for _, first, batch in dataset.rows(split, PROVENANCE_COLUMNS):
            files, positions = (batch.column(name) for name in PROVENANCE_COLUMNS)
            numbers = np.arange(first, first + len(batch))
            if dataset.layout.packed:
                numbers = numbers[pc.list_parent_indices(files)]
                files, positions = files.flatten(), positions.flatten()
            at = np.flatnonzero(pc.equal(positions, position))
            yield from (
                read_row(dataset, number, split)
                for number in dict.fromkeys(int(numbers[one]) for one in at if is_source(files[int(one)].as_py()))
            )

    items = chain(_records(dataset, is_it), rows() if has_provenance else ())
    found = list(islice(items, limit + 1))
    yield from found[:limit]
    if len(found) > limit:
        yield f"{limit:,} are shown; --limit shows more."
    if not found:
        advice = (
            "A position is the byte at which a line begins, or the number of a record (from 0)."
            if has_provenance
            else "The dataset has no sources of rows. Build with --provenance to record them."
        )
        where = f" in {split} or the rejects" if has_provenance else ""
        raise UserError(f"--source {source}:{position}: nothing{where} comes from that record. {advice}")


def _records(
    dataset: Dataset | FailedBuild, is_wanted: Callable[[Line], bool], with_rows: bool = True
) -> Iterator[Found]:
    """The examples of the wanted lines of exceptions; the line itself if it has no row, or rows are not wanted."""
    for line in read_lines(dataset, is_wanted):
        if line["row"] is None or not with_rows:
            yield line
        else:
            assert isinstance(dataset, Dataset)
            yield read_example(dataset, line)


def _kept(line: Line) -> dict[str, Any]:
    """The columns of its record that were kept."""
    return json.loads(line["columns"]) if line["columns"] else {}


def _title(line: Line) -> str:
    """A line of the exceptions about a record that has no row, or of which something was found."""
    reason = f" ({line['reason']})" if line["reason"] else ""
    known = [f"{line['outcome']}{reason}: {line['origin_file']}:{line['origin_position']}"]
    if line["detail"]:
        known.append(line["detail"])
    if lost := line["tokens_lost"]:
        known.append(f"{counted(lost, 'token')}, {line['trained_tokens_lost']:,} of them to train on")
    known += [f"{name}: {value}" for name, value in _kept(line).items()]
    return "; ".join(known)
