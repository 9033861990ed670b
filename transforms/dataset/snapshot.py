"""Snapshots: what a dataset that grows consists of after each commit.

What a commit adds is an increment: the files of a build, the inputs that it took, and its sums. A compaction adds one
increment in the place of those that it removes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from transforms.dataset.consumers import RowLayout
from transforms.dataset.manifest import FORMAT
from transforms.dataset.sums import add_records, add_sums, sums_of
from transforms.inputs.listing import InputFile


class Files(msgspec.Struct, frozen=True):
    """The files of an increment, as the manifest has them: their paths are relative to the dataset's folder."""

    shards: list[dict[str, Any]]
    rejects: list[str]
    ledger: list[dict[str, Any]]

    def paths(self) -> Iterator[str]:
        """Yield the path of each file."""
        yield from (file["path"] for file in (*self.shards, *self.ledger))
        yield from self.rejects


class Increment(msgspec.Struct, frozen=True):
    """What one commit adds.

    Attributes:
        id: a hash of what it was made from; empty for a dataset that was built before it grew.
        files: those that it names.
        inputs: whose records are in it.
        sums: of `sums_of` its manifest.
        status: whether its rows count. Those of a failed increment are not there; its inputs count as taken.
        error: why it failed.
    """

    id: str
    files: Files
    inputs: list[InputFile]
    sums: dict[str, Any]
    status: Literal["done", "failed"] = "done"
    error: str | None = None

    @classmethod
    def of(
        cls, id: str, manifest: Mapping[str, Any], inputs: Iterable[InputFile], error: str | None = None
    ) -> Increment:
        """Make an increment of its manifest.

        Args:
            id: of the increment.
            manifest: of build_manifest.
            inputs: whose records are in it, or are rejected.
            error: why it failed; None if it did not.
        """
        files = Files(manifest["shards"], manifest["rejects"], manifest.get("ledger", []))
        return cls(id, files, [*inputs], sums_of(manifest), "failed" if error else "done", error)


class Entry(msgspec.Struct, frozen=True):
    """A commit. parent: the version before it. remove: the ids of increments that `add` takes the place of."""

    version: int
    parent: int
    kind: Literal["append", "compact"]
    add: Increment
    remove: tuple[str, ...]
    time: str


class Snapshot(msgspec.Struct, frozen=True):
    """A dataset as it was after a commit. increments: in order; one that replaced others is where the first was."""

    version: int
    increments: tuple[Increment, ...] = ()

    def after(self, entry: Entry) -> Snapshot:
        """Return the snapshot after one more commit."""
        kept = [each for each in self.increments if each.id not in entry.remove]
        removed = [place for place, each in enumerate(self.increments) if each.id in entry.remove]
        kept.insert(min(removed, default=len(kept)), entry.add)
        return Snapshot(entry.version, tuple(kept))

    def has(self, id: str) -> bool:
        """Return whether an increment is in it."""
        return any(each.id == id for each in self.increments)

    def taken(self, without: Sequence[str] = ()) -> Mapping[tuple[int, str], set[str]]:
        """Return the versions of each input, by its source and url, of which the records are here.

        Args:
            without: the ids of increments that do not count.
        """
        versions: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        for increment in self.increments:
            if increment.id not in without:
                for file in increment.inputs:
                    versions[file.key].add(file.version)
        return versions

    def shards(self) -> list[dict[str, Any]]:
        """Return the shards, as the manifest has them, in the order of the increments."""
        return [shard for each in self.increments if each.status == "done" for shard in each.files.shards]

    def manifest(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest. job: the content of the dataset's job.json."""
        done = [each for each in self.increments if each.status == "done"]
        failed = [each for each in self.increments if each.status == "failed"]
        sources = [source["name"] for source in job.get("sources", ({"name": "input"},))]
        return {
            "format": FORMAT,
            "snapshot": {
                "version": self.version,
                "increments": len(self.increments),
                "failed": len(failed),
                "failed_records": add_records(each.sums["records"] for each in failed),
            },
            **add_sums([each.sums for each in done], sources),
            "layout": RowLayout.of(job["options"]).described(),
            "shards": self.shards(),
            "rejects": [path for each in self.increments for path in each.files.rejects],
            "ledger": [file for each in done for file in each.files.ledger],
            "job": job,
        }
