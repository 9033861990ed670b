"""Find what `chatmill inspect` shows: rows and rejects of a dataset, one after the other, with notes in between."""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from pipeline.show.rejects import Rejected, print_reject, reject_as_json
from pipeline.show.rows import Row, find_shard, print_row, read_row, read_row_of_shard, row_as_json
from pipeline.show.text import visible
from transforms.base.errors import UserError
from transforms.base.phrases import counted, did_you_mean
from transforms.dataset.layout import SPLITS
from transforms.dataset.reader import Dataset, FailedBuild
from transforms.dataset.row_examples import examples_of
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.rows.layout import RowLayout
from transforms.tokens.decoding import TokenDecoder

# What is shown: a row, a reject, a line of the exceptions about a record without a row, or a note as a sentence.
Found: TypeAlias = Row | Rejected | dict[str, Any] | str

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
    """Print a row, a reject, a line or a note. options: of `chatmill inspect`."""
    if isinstance(item, Row):
        print_row(console, item, decoder, options)
    elif isinstance(item, Rejected):
        print_reject(console, item, options.full)
    elif isinstance(item, dict):
        console.print(Text(visible(_line_title(item)), "bold"))
    else:
        console.print(visible(item))


def found_as_json(found: Iterator[Found], decoder: TokenDecoder, tokens: bool) -> dict[str, list[Any]]:
    """Return all that was found, for JSON. tokens: whether each token of a row is listed."""
    document: dict[str, list[Any]] = {"rows": [], "rejects": [], "records": [], "notes": []}
    for item in found:
        if isinstance(item, Row):
            document["rows"].append(row_as_json(item, decoder, tokens))
        elif isinstance(item, Rejected):
            document["rejects"].append(reject_as_json(item))
        else:
            document["records" if isinstance(item, dict) else "notes"].append(item)
    return document


def _overview(dataset: Dataset) -> str:
    """What a dataset holds, in one line."""
    manifest = dataset.manifest
    records = manifest["records"]
    splits = {split: dataset.row_count(split) for split in SPLITS if dataset.shards(split)}
    rows = " and ".join(f"{counted(rows, 'row')} of {split}" for split, rows in splits.items()) or "no rows"
    lost = [
        f"{count:,} {outcome} ({', '.join(f'{reason} {of_it:,}' for reason, of_it in records[outcome].items())})"
        for outcome in ("dropped", "rejected")
        if (count := sum(records[outcome].values()))
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
        for row in _rows_with(text, decoder, batch, dataset.layout):
            if found == limit:
                yield f"{counted(limit, 'row')} shown, of the first {first + row:,} of {rows:,}; --limit shows more."
                return
            found += 1
            yield read_row(dataset, first + row, split)
    yield f"{found:,} of {rows:,} rows of {split} have it."


def _rows_with(text: str, decoder: TokenDecoder, batch: pa.RecordBatch, layout: RowLayout) -> Iterator[int]:
    """The numbers of the rows of a batch with an example that has a text."""
    # Through Python numbers it would take a second for each row group.
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    rows = [
        examples_of({name: np.from_dlpack(column[row].values) for name, column in columns.items()}, layout)
        for row in range(len(batch))
    ]
    ids = [of_example.tolist() for row in rows for of_example in np.split(row.ids, row.offsets[1:-1])]
    found = np.array([text in decoded for decoded in decoder.texts(ids)])
    yield from np.unique(np.repeat(np.arange(len(rows)), [len(row.offsets) - 1 for row in rows])[found]).tolist()


def _reject(dataset: Dataset | FailedBuild, number: int) -> Iterator[Found]:
    """Yield a reject. number: among all of them, from 0."""
    count = 0
    for found in _rejects(dataset, lambda batch: np.ones(len(batch), bool)):
        if found.number == number:
            yield found
            return
        count += 1
    raise UserError(f"--reject {number}: the dataset has {count:,} rejects, numbered from 0.")


def _with_reason(dataset: Dataset | FailedBuild, reason: str, limit: int) -> Iterator[Found]:
    """Yield the first records that were rejected or dropped for a reason, or `truncated`, and how many there are."""

    def has_it(batch: pa.RecordBatch) -> np.ndarray:
        return _equals(batch.column("reason"), reason)

    kept = 0
    if isinstance(dataset, FailedBuild):
        reasons = (batch.column("reason").to_pylist() for batch in dataset.rejects())
        rejected: Mapping[str, int] = Counter(chain.from_iterable(reasons))
        counts = dict(rejected)
    else:
        records = dataset.manifest["records"]
        rejected = records["rejected"]
        counts = {**rejected, **records["dropped"]} | ({"truncated": n} if (n := records["truncated"]) else {})
        if kept := dataset.manifest["notes"].get("contaminated", 0):
            counts["contaminated"] = kept
    if reason not in counts:
        known = ", ".join(f"{name} ({count:,})" for name, count in counts.items()) or "none"
        hint = did_you_mean(reason, list(counts))
        raise UserError(f"--reason {reason}: no record has it.{hint} The reasons are: {known}.")
    if isinstance(dataset, FailedBuild) or reason in rejected:
        items: Iterator[Found] = _rejects(dataset, has_it)
    elif reason == "truncated":
        items = _lines(dataset, lambda batch: _equals(batch.column("outcome"), reason) & _is_first(batch))
    elif kept and reason == "contaminated":
        # What was found says more than the row.
        items = _lines(dataset, lambda batch: np.array(batch.column("detail").is_valid()) & _is_first(batch), False)
    else:
        items = _lines(dataset, has_it)
    yield from islice(items, limit)
    if counts[reason] > limit:
        yield f"{limit:,} of {counts[reason]:,} records are shown; --limit shows more."


def _from_record(dataset: Dataset, split: str, source: str, position: int, limit: int) -> Iterator[Found]:
    """Yield the rejects and the rows of a record. source: the url of its file, or the end of it from a slash.

    Rows are of the split, if their own columns are searched and not the exceptions.
    """

    def is_it(batch: pa.RecordBatch) -> np.ndarray:
        files, positions = (batch.column(name) for name in PROVENANCE_COLUMNS)
        return _is_record(files, positions, source, position)

    has_provenance = set(PROVENANCE_COLUMNS) <= set(dataset.layout.columns)
    items = chain(
        _rejects(dataset, is_it),
        _rows_from_record(dataset, split, source, position) if has_provenance else (),
        # Rejects were shown with their records, and rows with provenance as well.
        _lines(
            dataset,
            lambda batch: (
                is_it(batch)
                & ~_equals(batch.column("outcome"), "rejected")
                & (np.array(batch.column("row").is_null()) | (not has_provenance))
            ),
        ),
    )
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


def _is_record(files: pa.Array, positions: pa.Array, source: str, position: int) -> np.ndarray:
    at = _equals(positions, position)
    for row in np.flatnonzero(at).tolist():
        url = files[row].as_py()
        at[row] = url == source or url.endswith(f"/{source}")
    return at


def _rows_from_record(dataset: Dataset, split: str, source: str, position: int) -> Iterator[Row]:
    for _, first, batch in dataset.rows(split, PROVENANCE_COLUMNS):
        columns: list[Any] = [batch.column(name) for name in PROVENANCE_COLUMNS]
        rows = np.arange(len(batch))
        if dataset.layout.packed:
            rows = np.repeat(rows, np.diff(columns[0].offsets))
            columns = [column.flatten() for column in columns]
        for row in dict.fromkeys(rows[_is_record(columns[0], columns[1], source, position)].tolist()):
            yield read_row(dataset, first + row, split)


def _lines(dataset: Dataset, wanted: Callable[[pa.RecordBatch], np.ndarray], with_rows: bool = True) -> Iterator[Found]:
    """The examples of the wanted lines of exceptions; the line itself if it has no row, or rows are not wanted."""
    for file in dataset.manifest["exceptions"]:
        for batch in dataset.read_exceptions(file):
            for line in batch.filter(pa.array(wanted(batch))).to_pylist():
                if line["row"] is None or not with_rows:
                    columns = {"columns": json.loads(line["columns"])} if line["columns"] else {}
                    yield {name: value for name, value in line.items() if value is not None} | columns
                else:
                    row = read_row_of_shard(dataset, find_shard(dataset, file, line), line["row"])
                    yield replace(row, examples=row.examples[line["segment"] :][:1])


def _is_first(batch: pa.RecordBatch) -> np.ndarray:
    """Whether each line is the first of its record, of which tokens were counted."""
    return np.array(batch.column("tokens_lost").is_valid())


def _rejects(dataset: Dataset | FailedBuild, wanted: Callable[[pa.RecordBatch], np.ndarray]) -> Iterator[Rejected]:
    """The rejects that are wanted of each batch."""
    first = 0
    for batch in dataset.rejects():
        for row in np.flatnonzero(wanted(batch)).tolist():
            yield Rejected(number=first + row, **batch.slice(row, 1).to_pylist()[0])
        first += len(batch)


def _equals(column: pa.Array, value: Any) -> np.ndarray:
    return np.array(pc.fill_null(pc.equal(column, value), False))


def _line_title(line: dict[str, Any]) -> str:
    """A line of the exceptions about a record that has no row, or of which something was found."""
    reason = f" ({line['reason']})" if "reason" in line else ""
    known = [f"{line['outcome']}{reason}: {line['origin_file']}:{line['origin_position']}"]
    if "detail" in line:
        known.append(line["detail"])
    if lost := line.get("tokens_lost"):
        known.append(f"{counted(lost, 'token')}, {line['trained_tokens_lost']:,} of them to train on")
    known += [f"{name}: {value}" for name, value in line.get("columns", {}).items()]
    return "; ".join(known)
