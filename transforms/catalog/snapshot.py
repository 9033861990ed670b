"""Snapshots: what a dataset consists of after each commit.

What a commit adds is an increment: the files of a build, the inputs that it took, and its sums. It may take the place
of others: an overwrite that of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from transforms.catalog.consumers import RowLayout
from transforms.catalog.description import Description
from transforms.catalog.manifest import FORMAT, sums_of_receipts
from transforms.inputs.listing import InputFile
from transforms.model.receipts import Receipt

# What made an increment: a build, in the place of all that was there; or an append.
Kind = Literal["build", "append"]
_IN_BRIEF = ("records", "rows", "tokens", "trained_tokens")


class Files(msgspec.Struct, frozen=True):
    """The files of an increment: their paths are relative to the dataset's folder."""

    shards: list[dict[str, Any]]
    rejects: list[dict[str, Any]]
    ledger: list[dict[str, Any]]

    def paths(self) -> Iterator[str]:
        """Yield the path of each file."""
        yield from (file["path"] for file in (*self.shards, *self.rejects, *self.ledger))


class Increment(msgspec.Struct, frozen=True):
    """What one commit adds.

    Attributes:
        id: a hash of what it was made from.
        files: those that it names.
        inputs: whose records are in it.
        sums: of `sums_of_receipts`. In a snapshot only the outcomes of the records and the numbers of rows and tokens.
        version: of the commit that added it.
    """

    id: str
    files: Files
    inputs: list[InputFile]
    sums: dict[str, Any]
    version: int = 0

    @classmethod
    def of(cls, id: str, job: Description, receipts: Sequence[Receipt], inputs: list[InputFile]) -> Increment:
        """Make an increment of its receipts.

        Args:
            id: of the increment.
            job: that it was built by.
            receipts: of all its splits, in order.
            inputs: whose records are in it, or are rejected.

        Raises:
            ValueError: if the receipts do not add up.
        """
        shards = [msgspec.structs.asdict(shard) for receipt in receipts for shard in receipt.shards]
        files = Files(
            shards=sorted(shards, key=lambda shard: shard["path"]),
            rejects=[msgspec.structs.asdict(receipt.rejects) for receipt in receipts if receipt.rejects],
            ledger=[
                {
                    "path": receipt.ledger.path,
                    "entries": receipt.ledger.entries,
                    "bytes": receipt.ledger.bytes,
                    "sha256": receipt.ledger.sha256,
                    # That its lines mean by train and validation.
                    "shards": {shard.split: shard.path for shard in receipt.shards_once()},
                }
                for receipt in receipts
                if receipt.ledger
            ],
        )
        return cls(id, files, inputs, sums_of_receipts(job, receipts))

    def in_brief(self) -> Increment:
        """Return it with those sums alone that a snapshot has, since the others are some kilobytes for each."""
        return msgspec.structs.replace(self, sums={name: self.sums[name] for name in _IN_BRIEF})


class Entry(msgspec.Struct, frozen=True):
    """A commit.

    Attributes:
        version: that it makes.
        previous: the sha256 of the entry of the version before; empty for the first one.
        kind: what made the increment.
        add: the increment.
        remove: of a build: the ids of the increments that it takes the place of, which are all of the version before.
        time: of the commit, for people and for `expire`.
        job: of a build: the content of its job.json, which all that is appended has in common. None otherwise.
        total: the sums of the dataset, so that nobody needs those of all increments; None if they are those of `add`.
    """

    version: int
    previous: str
    kind: Kind
    add: Increment
    remove: tuple[str, ...]
    time: str
    job: dict[str, Any] | None = None
    total: dict[str, Any] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """A dataset as it was after a commit.

    Attributes:
        version: of the commit; 0 if there was none.
        increments: in the order of their commits.
        job: of the build that it began with.
        entry: the sha256 of the entry of the version.
        total: the sums of the increments.
    """

    version: int = 0
    increments: tuple[Increment, ...] = ()
    job: dict[str, Any] = {}
    entry: str = ""
    total: dict[str, Any] = {}

    def after(self, entry: Entry, sha256: str) -> Snapshot:
        """Return the snapshot after one more commit. sha256: of the entry."""
        increments = () if entry.kind == "build" else self.increments
        job = self.job if entry.job is None else entry.job
        total = entry.total or entry.add.sums
        return Snapshot(entry.version, (*increments, entry.add.in_brief()), job, sha256, total)

    def has(self, id: str) -> bool:
        """Return whether an increment is in it."""
        return any(each.id == id for each in self.increments)

    def taken(self) -> Mapping[tuple[int, str], set[str]]:
        """Return the versions of each input, by its source and url, of which the records are here."""
        versions: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        for increment in self.increments:
            for file in increment.inputs:
                versions[file.key].add(file.version)
        return versions

    def shards(self) -> list[dict[str, Any]]:
        """Return the shards, as the manifest has them, in the order of the increments."""
        return [shard for each in self.increments for shard in each.files.shards]

    def data_files(self) -> Iterator[dict[str, Any]]:
        """Yield each file of rows, rejects and ledger, as an increment has them, in the order of the increments."""
        for each in self.increments:
            yield from (*each.files.shards, *each.files.rejects, *each.files.ledger)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        return {
            "format": FORMAT,
            "snapshot": {"version": self.version, "increments": len(self.increments)},
            **self.total,
            "layout": RowLayout.of(self.job["options"]).described(),
            "shards": self.shards(),
            "rejects": [file["path"] for each in self.increments for file in each.files.rejects],
            "ledger": [file for each in self.increments for file in each.files.ledger],
            "job": self.job,
        }
