"""The entries of a dataset: a hash of each example, of its tokens and of its record, not of its row."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.audit.verification.ledger_check import first_lines
from transforms.audit.verification.row_check import record_hashes
from transforms.base.errors import UserError
from transforms.catalog.layout import SPLITS
from transforms.outputs import stem_of
from transforms.reading.reader import Dataset
from transforms.reading.row_examples import EXAMPLE_COLUMNS, examples_of
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.rows.ragged import indices_of, offsets_of, slices_of

# 37 bytes for each example. example: a hash of its tokens and labels. tokens: of its tokens. record: of the name of the
# file that it is from and its position there; null if the dataset does not have it. shard, row, segment: where it
# begins.
SCHEMA = pa.schema({
    "example": pa.uint64(), "tokens": pa.uint64(), "record": pa.uint64(), "split": pa.uint8(), "shard": pa.uint32(),
    "row": pa.uint32(), "segment": pa.uint32(),
})  # fmt: skip


def knows_records(dataset: Dataset) -> bool:
    """Return whether a dataset has the record of each example, in its rows or in its ledger."""
    return "source" in dataset.layout.columns or _has_whole_ledger(dataset)


def entries_of(dataset: Dataset) -> pa.Table:
    """Hash all examples of a dataset.

    Examples that packing cut are joined if the ledger has all of them.

    Returns:
        An entry of SCHEMA for each example.

    Raises:
        UserError: if the rows have no input_ids.
        InputError, StoreError: if it cannot be read.
    """
    if not dataset.layout.has_ids:
        raise UserError(f"{dataset.url}: the rows have no input_ids, so there is nothing to compare.")
    found = _by_ledger(dataset) if _has_whole_ledger(dataset) else _by_shard(dataset)
    batches = (pa.record_batch(columns, SCHEMA) for columns in found)
    return pa.Table.from_batches(batches, SCHEMA).combine_chunks()


def _has_whole_ledger(dataset: Dataset) -> bool:
    return dataset.options.get("ledger") == "all" and dataset.layout.has_segments


def _by_shard(dataset: Dataset) -> Iterator[dict[str, Any]]:
    columns = [name for name in (*EXAMPLE_COLUMNS, *PROVENANCE_COLUMNS) if name in dataset.layout.columns]
    for number, shard in enumerate(dataset.readable()):
        first = 0
        for batch in dataset.read_shard(shard, columns):
            found = examples_of(batch, dataset.packed, dataset.layout.shift_labels)
            rows = np.repeat(np.arange(first, first + len(batch)), found.counts)
            segments = indices_of(np.zeros(len(batch), np.int64), found.counts)
            split = SPLITS.index(shard["split"])
            yield _columns(found.ids, found.labels, found.offsets, _records(batch, len(rows)), split, number) | {
                "row": rows,
                "segment": segments,
            }
            first += len(batch)


def _by_ledger(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """The entries of the examples of each file of the ledger, whose lines name the segments of each in order."""
    shards = dataset.readable()
    numbers = {stem_of(shard["path"]): number for number, shard in enumerate(shards)}
    columns = [name for name in EXAMPLE_COLUMNS if name in dataset.layout.columns]
    for file in dataset.manifest["ledger"]:
        of_file = pa.Table.from_batches(dataset.read_ledger(file))
        for split, path in file["shards"].items():
            number = numbers[stem_of(path)]
            rows = pa.Table.from_batches(dataset.read_shard(shards[number], columns)).combine_chunks().to_batches()
            found = examples_of(rows[0], dataset.packed, dataset.layout.shift_labels)
            lines = of_file.filter(pc.and_(of_file["row"].is_valid(), pc.equal(of_file["split"], split)))
            row, segment = (lines[name].to_numpy() for name in ("row", "segment"))
            segments = offsets_of(found.counts)[row] + segment
            starts, lengths = found.offsets[segments], np.diff(found.offsets)[segments]
            ids, labels = (slices_of(values, starts, lengths) for values in (found.ids, found.labels))
            begins = np.flatnonzero(first_lines(lines, "source", "position", "example"))
            offsets = offsets_of(lengths)[np.append(begins, len(lines))]
            records = _record_hashes(*(lines[name].combine_chunks().take(begins) for name in ("source", "position")))
            yield _columns(ids, labels, offsets, records, SPLITS.index(split), number) | {
                "row": row[begins],
                "segment": segment[begins],
            }


def _columns(
    ids: np.ndarray, labels: np.ndarray, offsets: np.ndarray, records: Any, split: int, shard: int
) -> dict[str, Any]:
    """Hash examples. records: of each, as in SCHEMA."""
    of_tokens, of_examples = [], []
    for start, stop in pairwise(offsets.tolist()):
        digest = blake2b(ids[start:stop].data, digest_size=8)
        of_tokens.append(digest.digest())
        digest.update(labels[start:stop].data)
        of_examples.append(digest.digest())
    hashes = {"example": of_examples, "tokens": of_tokens}
    return {
        **{name: np.frombuffer(b"".join(digests), np.uint64) for name, digests in hashes.items()},
        "record": records,
        "split": np.full(len(of_tokens), split),
        "shard": np.full(len(of_tokens), shard),
    }


def _records(batch: pa.RecordBatch, examples: int) -> Any:
    """The records of the examples of rows."""
    if set(PROVENANCE_COLUMNS) <= set(batch.schema.names):
        sources, positions = (batch.column(name) for name in PROVENANCE_COLUMNS)
        if pa.types.is_list(sources.type):
            sources, positions = sources.flatten(), positions.flatten()
        if len(sources) == examples:
            return _record_hashes(sources, positions)
    return pa.nulls(examples, pa.uint64())


def _record_hashes(sources: Any, positions: Any) -> np.ndarray:
    """Hash where examples are from. Of a url only the name of the file counts, so that corpora may have moved."""
    urls = sources.dictionary_encode()
    names = pc.replace_substring_regex(urls.dictionary, "(?s).*/", "")
    return record_hashes(pa.DictionaryArray.from_arrays(urls.indices, names), positions)
