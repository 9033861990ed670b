"""Plan a compaction: which increments of a snapshot it joins, and which of their shards become one."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from transforms.catalog.description import library_versions
from transforms.catalog.snapshot import Increment, Snapshot
from transforms.outputs import ShardEntry, most_readable, stem_of


@dataclass(frozen=True)
class Unit:
    """What was written as one part of a build: a shard of train, one of validation, and their file of the ledger.

    Attributes:
        source: the number of the source of its records.
        shards: by split, in the format in which they are read.
        ledger: as the manifest has it; None if there is none.
    """

    source: int
    shards: Mapping[str, ShardEntry]
    ledger: Mapping[str, Any] | None

    @property
    def bytes(self) -> int:
        """The size of its shards."""
        return sum(shard["bytes"] for shard in self.shards.values())


@dataclass(frozen=True)
class Plan:
    """What a compaction does.

    Attributes:
        id: of the increment that it makes.
        increments: that it removes, in order.
        groups: the units of these increments, in groups of which each becomes one unit.
    """

    id: str
    increments: Sequence[Increment]
    groups: Sequence[Sequence[Unit]]


def plan_compaction(snapshot: Snapshot, shard_bytes: int, sources: int) -> Plan | None:
    """Plan the compaction of a snapshot.

    All increments whose shards have on average less than a quarter of shard_bytes are joined. So what is joined once is
    left alone from then on, and an appendable dataset is not written again each time. An increment that took a file
    again, of which an earlier one has another version, stays as it is: a record has one place in an increment.

    Args:
        snapshot: the newest one.
        shard_bytes: how large shards become at most, unless they are larger already.
        sources: how many the dataset has. Of several, a shard has records of one, and only such shards are joined.

    Returns:
        The plan; None if there would not be fewer shards.
    """
    increments: list[Increment] = []
    units: list[Unit] = []
    taken: set[tuple[int, str]] = set()
    for increment in snapshot.increments:
        files = {file.key for file in increment.inputs}
        of_increment = _units(increment, sources) if increment.status == "done" and not files & taken else []
        if of_increment and sum(unit.bytes for unit in of_increment) * 4 < shard_bytes * len(of_increment):
            increments.append(increment)
            units += of_increment
            taken |= files
    groups = _groups(units, shard_bytes)
    if len(groups) == len(units):
        return None
    made_of = [[increment.id for increment in increments], shard_bytes, sorted(library_versions().items())]
    id = hashlib.sha256(b"compact" + msgspec.json.encode(made_of)).hexdigest()[:16]
    return Plan(id, increments, groups)


def _units(increment: Increment, sources: int) -> list[Unit]:
    """The units of an increment that have rows, in the order of its shards; none if their sources are not known."""
    # The ledger names the shards in one of the formats.
    ledgers = {stem_of(path): file for file in increment.files.ledger for path in file["shards"].values()}
    if not increment.files.shards or (sources > 1 and any("source" not in shard for shard in increment.files.shards)):
        return []
    format = most_readable(shard["format"] for shard in increment.files.shards)
    found: dict[str, Unit] = {}
    for shard in increment.files.shards:
        if shard["format"] == format:
            ledger = ledgers.get(stem_of(shard["path"]))
            key = ledger["path"] if ledger else shard["path"]
            shards = found[key].shards if key in found else {}
            found[key] = Unit(shard.get("source", 0), {**shards, shard["split"]: shard}, ledger)
    return [*found.values()]


def _groups(units: Sequence[Unit], shard_bytes: int) -> list[list[Unit]]:
    """Put units of the same source that follow each other together, up to a size."""
    of_sources: defaultdict[int, list[list[Unit]]] = defaultdict(list)
    for unit in units:
        groups = of_sources[unit.source]
        if not groups or sum(each.bytes for each in groups[-1]) + unit.bytes > shard_bytes:
            groups.append([])
        groups[-1].append(unit)
    return [group for _, groups in sorted(of_sources.items()) for group in groups]
