"""What the log and the manifest of a dataset must have, of the types on which commands rely."""

from __future__ import annotations

from typing import Any

import msgspec

from transforms.catalog.description import Description
from transforms.model.receipts import FirstExample
from transforms.model.statistics import Statistics


class CheckedRecords(msgspec.Struct, gc=False):
    """The outcomes of records."""

    read: int
    kept: int
    truncated: int
    dropped: dict[str, int]
    rejected: dict[str, int]


class CheckedTotals(msgspec.Struct, gc=False):
    """The sums of a source."""

    records: CheckedRecords
    rows: int
    tokens: int
    trained_tokens: int


class CheckedSource(CheckedTotals, gc=False):
    """The sums of a source of an increment."""

    name: str


class CheckedSums(CheckedTotals, gc=False):
    """The sums of an increment."""

    trained_tokens_lost: int
    notes: dict[str, int]
    sources: list[CheckedSource]
    statistics: Statistics
    first_examples: dict[str, FirstExample]
    first_rejects: dict[str, FirstExample]
    first_drops: dict[str, FirstExample]


class CheckedShard(msgspec.Struct, gc=False):
    """A file of rows."""

    path: str
    split: str
    format: str
    rows: int
    tokens: int
    trained_tokens: int
    bytes: int
    sha256: str


class CheckedRejects(msgspec.Struct, gc=False):
    """A file of rejects."""

    path: str
    sha256: str


class CheckedLedger(msgspec.Struct, gc=False):
    """A file of exceptions."""

    path: str
    entries: int
    sha256: str
    shards: dict[str, str]


class CheckedFiles(msgspec.Struct, gc=False):
    """The files of an increment."""

    shards: list[CheckedShard]
    rejects: list[CheckedRejects]
    ledger: list[CheckedLedger]


class CheckedIncrement(msgspec.Struct, gc=False):
    """An increment of a snapshot."""

    sums: CheckedTotals
    files: CheckedFiles


class CheckedAdded(CheckedIncrement, gc=False):
    """An increment of an entry."""

    sums: CheckedSums


class CheckedEntry(msgspec.Struct, gc=False):
    """An entry of the log."""

    add: CheckedAdded
    job: Description | None = None
    total: CheckedSums | None = None


class CheckedSnapshot(msgspec.Struct, gc=False):
    """A checkpoint of the log."""

    increments: list[CheckedIncrement]
    job: Description
    total: CheckedSums


class _Job(msgspec.Struct):
    options: dict[str, Any]
    tokenizer: str


class _Version(msgspec.Struct):
    version: int


class CheckedManifest(CheckedTotals, gc=False):
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
