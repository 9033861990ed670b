"""What the log and the manifest of a dataset must have, of the types on which commands rely."""

from __future__ import annotations

from typing import Any

import msgspec

from transforms.model.receipts import FirstExample
from transforms.model.statistics import Statistics


class CheckedRecords(msgspec.Struct):
    """The outcomes of records."""

    read: int
    kept: int
    truncated: int
    dropped: dict[str, int]
    rejected: dict[str, int]


class CheckedTotals(msgspec.Struct):
    """The sums of a source."""

    records: CheckedRecords
    rows: int
    tokens: int
    trained_tokens: int


class CheckedSums(CheckedTotals):
    """The sums of an increment."""

    trained_tokens_lost: int
    notes: dict[str, int]
    sources: list[CheckedTotals]
    statistics: Statistics
    first_examples: dict[str, FirstExample]
    first_rejects: dict[str, FirstExample]
    first_drops: dict[str, FirstExample]


class CheckedShard(msgspec.Struct):
    """A file of rows."""

    path: str
    split: str
    format: str
    rows: int
    tokens: int
    trained_tokens: int
    bytes: int
    sha256: str


class CheckedRejects(msgspec.Struct):
    """A file of rejects."""

    path: str
    sha256: str


class CheckedLedger(msgspec.Struct):
    """A file of the ledger."""

    path: str
    entries: int
    sha256: str
    shards: dict[str, str]


class CheckedFiles(msgspec.Struct):
    """The files of an increment."""

    shards: list[CheckedShard]
    rejects: list[CheckedRejects]
    ledger: list[CheckedLedger]

    def paths(self) -> list[str]:
        """Return each path that is named."""
        paths = [shard.path for shard in self.shards] + [file.path for file in self.rejects]
        return paths + [path for file in self.ledger for path in (file.path, *file.shards.values())]


class _Job(msgspec.Struct):
    options: dict[str, Any]
    tokenizer: str


class _Version(msgspec.Struct):
    version: int


class CheckedManifest(CheckedTotals):
    """A manifest."""

    format: int
    notes: dict[str, int]
    layout: dict[str, Any]
    sources: list[CheckedTotals]
    shards: list[CheckedShard]
    rejects: list[str]
    job: _Job
    snapshot: _Version
    ledger: list[CheckedLedger] = []
