"""Rewrite groups of units: the rows of each become one shard, in bounded memory, and the lines of the ledger follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.catalog.consumers import about_rows
from transforms.catalog.layout import SPLITS
from transforms.catalog.schema import schema_of
from transforms.model.receipts import name_of
from transforms.model.statistics import Statistics, histogram_of
from transforms.reading.reader import Dataset, reading
from transforms.rows.ragged import offsets_of
from transforms.steps.ledger_writer import ledger_writer
from transforms.steps.row_files import RowFiles
from transforms.storage.files import join, sha256_of
from transforms.storage.writing import NewFile
from transforms.upkeep.compaction.groups import Plan, Unit
from transforms.upkeep.compaction.repacking import Repacked, knows_segments, repack

# The tokens that are read and repacked at once: some 300 MB.
_TOKENS_AT_ONCE = 16 << 20


@dataclass
class Written:
    """What was written of some groups.

    Attributes:
        shards, ledger: as the manifest has them.
        statistics: the histograms of the rows, if these were repacked.
        gained: by the number of a source, how many rows and tokens it has more than before.
    """

    shards: list[dict[str, Any]] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    statistics: Statistics = Statistics()
    gained: dict[int, Counter[str]] = field(default_factory=dict)


class Rewriter:
    """Writes the groups of a plan.

    Args:
        dataset: as it is before the compaction.
        plan: of the compaction.
    """

    def __init__(self, dataset: Dataset, plan: Plan):
        self._dataset, self._plan = dataset, plan
        self._layout = dataset.layout
        self._repacks = knows_segments(self._layout)
        about = about_rows(dataset.options, dataset.manifest["job"]["tokenizer"])
        self._schema = schema_of(self._layout).with_metadata({"chatmill": msgspec.json.encode(about)})
        self._has_sources = len(dataset.manifest["sources"]) > 1

    def write(self) -> Written:
        """Write all groups."""
        written = Written()
        for number, group in enumerate(self._plan.groups):
            moves: dict[str, _Moves] = {}
            paths: dict[str, str] = {}
            for split in SPLITS:
                if _shards(group, split):
                    moves[split] = _Moves()
                    paths[split] = self._write_rows(written, group, split, number, moves[split])
            if any(unit.ledger for unit in group):
                self._write_ledger(written, group, number, paths, moves)
        written.shards.sort(key=lambda shard: shard["path"])
        return written

    def _write_rows(self, written: Written, group: Sequence[Unit], split: str, number: int, moves: _Moves) -> str:
        """Write the shard of a group in each format. Returns its path in the first of them."""
        stem = name_of(split, self._plan.id, number)
        files = [RowFiles(self._dataset.url, stem, split, format) for format in self._layout.formats]
        before = _shards(group, split)
        for each in before:  # what was damaged, or is the file of another shard, would get checksums that fit
            url = join(self._dataset.url, each["path"])
            with reading(url):
                if sha256_of(url) != each["sha256"]:
                    raise ValueError("its sha256 is not that of the manifest")
        was = {what: sum(shard[what] for shard in before) for what in ("rows", "tokens", "trained_tokens")}
        facts = was
        if self._repacks:
            facts = {**was, "rows": 0, "tokens": 0}
        for rows in _by_tokens(batch for shard in before for batch in self._dataset.read_shard(shard)):
            if self._repacks:
                repacked = repack(rows, self._layout)
                rows = repacked.rows
                facts["rows"] += len(rows)
                facts["tokens"] += int(repacked.row_lengths.sum())
                written.statistics += _statistics(repacked)
                moves.add(repacked)
            for of_format in files:
                of_format.write(rows.select(self._schema.names).cast(self._schema), 0, 0)
        source = written.gained.setdefault(group[0].source, Counter())
        source.update({what: facts[what] - was[what] for what in ("rows", "tokens")})
        first = ""
        for of_format in files:
            for shard in of_format.complete():
                counts = facts if shard.rows else dict.fromkeys(facts, 0)
                first = first or shard.path
                entry = msgspec.structs.asdict(shard) | counts
                written.shards.append(entry | ({"source": group[0].source} if self._has_sources else {}))
        return first

    def _write_ledger(
        self,
        written: Written,
        group: Sequence[Unit],
        number: int,
        paths: Mapping[str, str],
        moves: Mapping[str, _Moves],
    ) -> None:
        """Write the lines of a group, which name rows of its shards."""
        path = join("ledger", f"{name_of('ledger', self._plan.id, number)}.parquet")
        file, writer, entries = NewFile(join(self._dataset.url, path)), None, 0
        firsts = dict.fromkeys(SPLITS, 0)
        for unit in group:
            if unit.ledger:
                lines = pa.Table.from_batches(self._dataset.read_ledger(unit.ledger))
                writer = writer or ledger_writer(file, lines.schema)
                writer.write_table(_moved(lines, firsts, moves))
                entries += len(lines)
            for split, shard in unit.shards.items():
                firsts[split] += shard["rows"]
        assert writer
        writer.close()
        file.complete()
        entry = {"path": path, "entries": entries, "bytes": file.bytes, "sha256": file.sha256, "shards": dict(paths)}
        written.ledger.append(entry)


class _Moves:
    """Where the segments of the rows of a group are now. If none is added, they are where they were."""

    def __init__(self) -> None:
        self._counts: list[np.ndarray] = []
        self._places: list[np.ndarray] = []
        self._rows = 0
        self._joined: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, repacked: Repacked) -> None:
        """Add the next rows that were repacked."""
        self._counts.append(repacked.segments_before)
        self._places.append(repacked.places + np.array([self._rows, 0, 0]))
        self._rows += len(repacked.rows)

    def of(self, rows: np.ndarray, segments: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the row, the number in it, and the tokens of segments: int64, shape (3, segments).

        Args:
            rows: of each segment, before.
            segments, tokens: its number there, and its tokens.
        """
        if not self._places:
            return np.stack([rows, segments, tokens])
        if self._joined is None:
            self._joined = offsets_of(np.concatenate(self._counts)), np.concatenate(self._places)
        offsets, places = self._joined
        return places[offsets[rows] + segments].T


def _shards(group: Sequence[Unit], split: str) -> list[Mapping[str, Any]]:
    return [unit.shards[split] for unit in group if split in unit.shards]


def _by_tokens(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put batches together, until they have enough values."""
    waiting: list[pa.RecordBatch] = []
    values = 0
    for batch in batches:
        waiting.append(batch)
        values += max(len(column.flatten()) for column in batch.columns if pa.types.is_list(column.type))
        if values >= _TOKENS_AT_ONCE:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, values = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _statistics(repacked: Repacked) -> Statistics:
    numbers = {"examples_per_row": repacked.examples_per_row, "row_tokens": repacked.row_lengths}
    return Statistics({name: histogram_of(name, of_rows) for name, of_rows in numbers.items()})


def _moved(lines: pa.Table, firsts: Mapping[str, int], moves: Mapping[str, _Moves]) -> pa.Table:
    """Give lines the new places of their segments. firsts: the rows of the group before those that they name."""
    names = ("row", "segment", "tokens")
    places = np.stack([pc.fill_null(lines[name], -1).to_numpy().astype(np.int64) for name in names])
    for split, move in moves.items():
        here = np.flatnonzero(pc.fill_null(pc.equal(lines["split"], split), False).to_numpy())
        rows, segments, tokens = places[:, here]
        places[:, here] = move.of(firsts[split] + rows, segments, tokens)
    for name, values in zip(names, places, strict=True):
        number = lines.schema.get_field_index(name)
        column = pa.array(values, mask=values < 0).cast(lines.schema.field(name).type)
        lines = lines.set_column(number, lines.schema.field(name), column)
    return lines
