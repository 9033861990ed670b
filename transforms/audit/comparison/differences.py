"""What differs between two datasets: jobs, outcomes of records, and examples, in any rows and shards."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.audit.comparison.entries import entries_of
from transforms.outputs import ShardEntry
from transforms.reading.reader import Dataset
from transforms.tokens.tokenizer_files import read_tokenizer_folder

# What examples of two datasets have in common that are equal, or of which that kind of thing differs. Each kind is
# looked for among the examples that those before it left; what is left in the end, only one of the datasets has.
_STAGES = {"equal": ("example", "split"), "split": ("example",), "mask": ("tokens",), "tokens": ("record",)}
_PLACE = ("shard", "row", "segment")
# Keys of a job that follow from others, or say nothing of the rows.
_NOT_COMPARED = ("recipe", "options", "versions", "split_bytes", "splits", "input_bytes", "sources")


@dataclass(frozen=True)
class Difference:
    """An example that differs, or that one of the datasets has: where it is in each, None if it is not there.

    Attributes:
        a, b: (shard, row of the shard, segment of the row).
    """

    a: tuple[ShardEntry, int, int] | None
    b: tuple[ShardEntry, int, int] | None


@dataclass
class Differences:
    """How the examples of two datasets differ.

    Attributes:
        examples: how many A has, and B.
        equal: how many are the same in both, and in the same split.
        counts: of the others, by kind.
        first: the first ones of each kind, in the order of A, or of B if A does not have them.
    """

    examples: tuple[int, int]
    equal: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[Difference]] = field(default_factory=dict)


def changed_job(a: Dataset, b: Dataset) -> dict[str, tuple[Any, Any]]:
    """Return what of the jobs of two datasets differs, by name: options, versions, the tokenizer's files, inputs."""
    described = [dict(_described(dataset)) for dataset in (a, b)]
    names = dict.fromkeys([*described[0], *described[1]])
    pairs = {name: (described[0].get(name), described[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _described(dataset: Dataset) -> Iterator[tuple[str, Any]]:
    job = dataset.manifest["job"]
    for name, value in job["options"].items():
        yield f"--{name}", value
    for name, value in job["versions"].items():
        yield f"version of {name}", value
    for name, value in job.items():
        if name == "tokenizer":
            for file, content in sorted(read_tokenizer_folder(dataset.tokenizer_folder).items()):
                yield f"tokenizer: {file}", hashlib.sha256(content).hexdigest()
        elif name not in _NOT_COMPARED:
            yield name.replace("_", " "), value
    for number, source in enumerate(job.get("sources", [])):
        # Its files are compared, as the inputs of the job, and not how they were named.
        yield f"source {number}", {name: value for name, value in source.items() if name != "input"}


def changed_records(a: Dataset, b: Dataset) -> dict[str, tuple[int, int]]:
    """Return the outcomes of which two datasets have another number of records, such as `rejected: bad_message`."""
    counts = []
    for dataset in (a, b):
        records = dataset.manifest["records"]
        counts.append({name: records[name] for name in ("read", "kept", "truncated")})
        for outcome in ("dropped", "rejected"):
            counts[-1] |= {f"{outcome}: {reason}": number for reason, number in records[outcome].items()}
    names = dict.fromkeys([*counts[0], *counts[1]])
    pairs = {name: (counts[0].get(name, 0), counts[1].get(name, 0)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def compare(a: Dataset, b: Dataset, shown: int) -> Differences:
    """Compare the examples of two datasets, as multisets: order, packing and sharding do not matter.

    Args:
        a, b: the datasets.
        shown: how many differences of each kind to name.

    Raises:
        UserError: if one of them has no input_ids.
        InputError, StoreError: if one of them cannot be read.
    """
    with ThreadPoolExecutor(2) as threads:
        left = tuple(threads.map(entries_of, (a, b)))
    found = Differences((len(left[0]), len(left[1])))
    shards = a.readable(), b.readable()
    for kind, keys in _STAGES.items():
        keys = (*keys, "nth")
        numbered = [_numbered(entries, keys[:-1]) for entries in left]
        rest = [
            one.join(other.select(keys), keys, join_type="left anti").drop_columns("nth")
            for one, other in (numbered, numbered[::-1])
        ]
        count = len(left[0]) - len(rest[0])
        left = tuple(rest)
        if kind == "equal":
            found.equal = count
        elif count:
            of_b = numbered[1].select([*keys, *_PLACE]).rename_columns([*keys, *(f"{name}_b" for name in _PLACE)])
            found.counts[kind] = count
            found.first[kind] = [
                Difference(_place(shards[0], pair), _place(shards[1], pair, "_b"))
                for pair in _first(numbered[0].join(of_b, keys, join_type="inner"), shown)
            ]
    for side, kind in enumerate(("only in A", "only in B")):
        if count := len(left[side]):
            places = [_place(shards[side], entry) for entry in _first(left[side], shown)]
            found.counts[kind] = count
            found.first[kind] = [Difference(None, place) if side else Difference(place, None) for place in places]
    return found


def _numbered(entries: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Number the entries that have the same keys, in order, so that a join pairs each with one at most."""
    order = pc.sort_indices(entries, [(name, "ascending") for name in keys]).to_numpy()
    begins = np.arange(len(order)) == 0
    for name in keys:
        values = entries[name].fill_null(0).to_numpy()[order]
        begins[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(begins)
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order)) - starts[np.cumsum(begins) - 1]
    return entries.append_column("nth", pa.array(numbers))


def _first(entries: pa.Table, shown: int) -> list[dict[str, Any]]:
    """The first entries, in the order of the dataset. shown: how many."""
    first = pc.select_k_unstable(entries, shown, [(name, "ascending") for name in _PLACE])
    return entries.take(first).to_pylist()


def _place(shards: list[ShardEntry], entry: Mapping[str, Any], suffix: str = "") -> tuple[ShardEntry, int, int]:
    shard, row, segment = (entry[name + suffix] for name in _PLACE)
    return shards[shard], row, segment
