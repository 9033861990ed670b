"""What differs between two datasets: jobs, outcomes of records, and examples, whatever rows and shards they are in."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.dataset.comparison.hashing import ENTRY, ExampleHasher, columns_of, mixed
from transforms.dataset.comparison.matching import EntryFile, match
from transforms.dataset.examples import EXAMPLE_COLUMNS
from transforms.dataset.layout import SPLITS
from transforms.dataset.reader import Dataset
from transforms.dataset.verification.ledger import first_lines
from transforms.errors import UserError
from transforms.outputs import ShardEntry, stem_of
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.tokens.decoding import TokenDecoder
from transforms.tokens.files import read_tokenizer_folder

# What may differ of an example that both datasets have, and examples that one of them has.
PAIR_KINDS = ("split", "mask", "truncation", "tokens", "text")
KINDS = (*PAIR_KINDS, "only in A", "only in B")
_WHOLE = ("ids", "labels", "text", "tokens")
# Each stage looks for pairs among the examples that those before it left: by the fields that a pair has in common.
_STAGES: tuple[tuple[str, ...], ...] = (
    (*_WHOLE, "split"),
    _WHOLE,
    ("content",),
    ("origin",),
    ("ids", "text", "tokens"),
    ("cut",),
    ("text", "trained_text"),
    ("text",),
)
# Keys of a job that follow from others, or say nothing of the rows.
_NOT_COMPARED = ("command", "options", "versions", "split_bytes", "splits", "input_bytes", "sources")


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
            for file, content in sorted(read_tokenizer_folder(dataset.folder.tokenizer).items()):
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
    cut = _common_cut(a, b)
    with ThreadPoolExecutor(2) as threads:  # numpy and Arrow do the work, outside of Python's lock
        left = list(threads.map(lambda dataset: _entries_of(dataset, cut), (a, b)))
    found = Differences((len(left[0]), len(left[1])))
    first: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {kind: [] for kind in KINDS}
    for stage in _STAGES:
        rest = EntryFile(), EntryFile()
        for matched in match(left[0], left[1], stage):
            kinds = _kinds_of(matched.a, matched.b, cut is not None)
            found.equal += int(np.sum(kinds < 0))
            for number, kind in enumerate(PAIR_KINDS):
                of_kind = kinds == number
                _add(found.counts, first[kind], kind, matched.a[of_kind], matched.b[of_kind], shown)
            rest[0].add(matched.rest_a)
            rest[1].add(matched.rest_b)
        left = list(rest)
        if not (len(left[0]) and len(left[1])):
            break
    for kind, entries in zip(("only in A", "only in B"), left, strict=True):
        for part in entries.parts():
            _add(found.counts, first[kind], kind, part, part, shown)
    shards = a.readable(), b.readable()
    for kind, pairs in first.items():
        for of_a, of_b in pairs:
            place_a = None if kind == "only in B" else _place(shards[0], of_a)
            place_b = None if kind == "only in A" else _place(shards[1], of_b)
            found.first.setdefault(kind, []).append(Difference(place_a, place_b))
    return found


def _common_cut(a: Dataset, b: Dataset) -> tuple[int, bool] | None:
    """How many tokens both datasets would be cut to, if they cut in other ways; and whether to the last ones."""
    limits = []
    for dataset in (a, b):
        cuts = dataset.max_length is not None and dataset.layout.packing not in ("bfd_split", "wrapped")
        truncation = dataset.options.get("truncation", "keep_start")
        limits.append((dataset.max_length, truncation) if cuts and truncation != "drop" else (None, truncation))
    given = sorted((limit, truncation == "keep_end") for limit, truncation in limits if limit is not None)
    return given[0] if given and limits[0] != limits[1] else None


def _kinds_of(a: np.ndarray, b: np.ndarray, cuts_differ: bool) -> np.ndarray:
    """What differs in each pair: int64, shape (pairs,), the number of the kind in PAIR_KINDS; -1 if nothing does."""
    is_cut = cuts_differ & ((a["lost"] != b["lost"]) | (a["lost"] > 0))

    def same(*fields: str) -> np.ndarray:
        pairs = [pair for name in fields for pair in zip(columns_of(a, name), columns_of(b, name), strict=True)]
        return np.logical_and.reduce([of_a == of_b for of_a, of_b in pairs])

    return np.select(
        [
            same(*_WHOLE, "split"),
            same(*_WHOLE),
            same("ids", "text", "tokens"),
            same("cut") | is_cut,
            same("text", "trained_text"),
            same("text"),
        ],
        [-1, *map(PAIR_KINDS.index, ("split", "mask", "truncation", "tokens", "mask"))],
        PAIR_KINDS.index("text"),
    )


def _add(counts: Counter[str], first: list[Any], kind: str, a: np.ndarray, b: np.ndarray, shown: int) -> None:
    """Count pairs of a kind, and keep the first ones."""
    if not len(a):
        return
    counts[kind] += len(a)
    order = np.lexsort([a[name] for name in ("segment", "row", "shard")])[:shown]
    first.extend((a[i], b[i]) for i in order)
    first.sort(key=lambda pair: tuple(int(pair[0][name]) for name in ("shard", "row", "segment")))
    del first[shown:]


def _place(shards: list[ShardEntry], entry: np.ndarray) -> tuple[ShardEntry, int, int]:
    return shards[int(entry["shard"])], int(entry["row"]), int(entry["segment"])


def has_whole_ledger(dataset: Dataset) -> bool:
    """Return whether the ledger of a dataset has each example, with the content of its record."""
    examples_are_known = not dataset.packed or {"seq_lengths", "position_ids"} & set(dataset.layout.columns)
    return dataset.options.get("ledger") == "all" and bool(examples_are_known)


def _entries_of(dataset: Dataset, cut: tuple[int, bool] | None) -> EntryFile:
    """Hash all examples of a dataset."""
    if "input_ids" not in dataset.layout.columns:
        raise UserError(f"{dataset.url}: the rows have no input_ids, so that there is nothing to compare.")
    hasher = ExampleHasher(
        TokenDecoder.load(dataset.folder.tokenizer), dataset.packed, dataset.layout.shift_labels, cut
    )
    by_shard = _by_ledger(dataset, hasher) if has_whole_ledger(dataset) else _by_shard(dataset, hasher)
    entries = EntryFile()
    for found in by_shard:
        entries.add(found)
    return entries


def _by_shard(dataset: Dataset, hasher: ExampleHasher) -> Iterator[np.ndarray]:
    """The entries of the examples of each shard, as its rows have them."""
    columns = [name for name in (*EXAMPLE_COLUMNS, *PROVENANCE_COLUMNS) if name in dataset.layout.columns]
    for number, shard in enumerate(dataset.readable()):
        first = 0
        for batch in dataset.read_shard(shard, columns):
            entries = hasher.entries(batch)
            entries["origin"] = _origins(batch, entries)
            entries["split"], entries["shard"] = SPLITS.index(shard["split"]), number
            entries["row"] += np.uint32(first)
            first += len(batch)
            yield entries


def _origins(batch: pa.RecordBatch, entries: np.ndarray) -> Any:
    """A hash of the source and the position of each example, 0 if the rows do not have them."""
    if not set(PROVENANCE_COLUMNS) <= set(batch.schema.names):
        return 0
    sources, positions = (batch.column(name) for name in PROVENANCE_COLUMNS)
    if pa.types.is_list(sources.type):
        sources, positions = sources.flatten(), positions.flatten()
    return _origin_hashes(sources, positions, np.zeros(len(sources))) if len(sources) == len(entries) else 0


def _origin_hashes(sources: Any, positions: Any, examples: np.ndarray) -> np.ndarray:
    """Hash where examples come from: uint64, shape (examples, 2). Of a url only the name of the file counts."""
    encoded = sources.dictionary_encode()
    names = [hashlib.blake2b(url.rpartition("/")[2].encode(), digest_size=8) for url in encoded.dictionary.to_pylist()]
    of_names = np.array([int.from_bytes(name.digest(), "little") for name in names], np.uint64)
    places = of_names[encoded.indices.to_numpy()] ^ mixed(positions.to_numpy())
    return np.stack([mixed(places + np.uint64(lane)) + mixed(examples) for lane in range(2)], axis=1)


def _by_ledger(dataset: Dataset, hasher: ExampleHasher) -> Iterator[np.ndarray]:
    """The entries of the examples of each file of the ledger, with their records. Segments of an example are joined."""
    shards = {stem_of(shard["path"]): i for i, shard in enumerate(dataset.readable())}
    all_shards = dataset.readable()
    columns = [name for name in EXAMPLE_COLUMNS if name in dataset.layout.columns]
    for file in dataset.manifest["ledger"]:
        lines = pa.Table.from_batches(dataset.read_ledger(file))
        is_first = first_lines(lines, "source", "position")
        lost = pc.fill_null(lines.column("tokens_lost"), 0).to_numpy()[is_first]
        lines = lines.append_column("lost", pa.array(lost[np.cumsum(is_first) - 1]))
        lines = lines.filter(lines.column("row").is_valid()).combine_chunks()
        found = np.zeros(len(lines), ENTRY)
        for split, path in file["shards"].items():
            number = shards[stem_of(path)]
            parts, first = [], 0
            for batch in dataset.read_shard(all_shards[number], columns):
                parts.append(hasher.entries(batch))
                parts[-1]["row"] += np.uint32(first)
                first += len(batch)
            entries = np.concatenate(parts)
            entries["split"], entries["shard"] = SPLITS.index(split), number
            of_split = np.asarray(pc.equal(lines.column("split"), split))
            rows, segments = (lines.column(name).to_numpy()[of_split] for name in ("row", "segment"))
            found[of_split] = entries[np.searchsorted(entries["row"], rows) + segments]
        starts = np.flatnonzero(first_lines(lines, "source", "position", "example"))
        found = hasher.joined(found, starts)
        lines = lines.take(starts)
        examples = lines.column("example").to_numpy()
        content = lines.column("content").combine_chunks()
        digests = np.frombuffer(b"".join(digest or bytes(16) for digest in content.to_pylist()), np.uint64)
        digests = digests.reshape(-1, 2)
        is_known = digests.any(axis=1)
        found["content"][is_known] = mixed(digests + examples[:, None].astype(np.uint64))[is_known]
        found["origin"] = _origin_hashes(lines.column("source").combine_chunks(), lines.column("position"), examples)
        found["lost"] = lines.column("lost").to_numpy()
        yield found
