"""Receipts: what was made of one part of one split. They alone meet in one place, where the dataset is finished.

A receipt is written after all that it names, so a split whose receipts are there need not be milled again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from transforms.storage.files import exists, join, read_bytes, write_whole


class Shard(msgspec.Struct, frozen=True):
    """A file of a shard. Most formats have one file for each shard; of several, the first one counts the rows.

    file: its name in the folder of shards, until the dataset is committed. split: train or validation.
    rows, tokens, trained_tokens: of the shard; 0 for its further files.
    """

    file: str
    format: str
    split: str
    rows: int
    tokens: int
    trained_tokens: int
    bytes: int
    sha256: str

    @property
    def stem(self) -> str:
        """The part of the name that all files of one shard share."""
        return self.file.partition(".")[0]

    @property
    def suffix(self) -> str:
        """The rest of the name, from its first dot."""
        return self.file[len(self.stem) :]


class FirstExample(msgspec.Struct, frozen=True):
    """The first record rejected for a reason, or that a note is about. position: its byte or row in the source."""

    source: str
    position: str
    detail: str


class Receipt(msgspec.Struct, frozen=True):
    """The shards and the outcomes of one part of one split; last tells that the split has no further part."""

    split: int
    part: int
    last: bool
    read: int
    kept: int
    truncated: int
    dropped: Mapping[str, int]
    rejected: Mapping[str, int]
    notes: Mapping[str, int]
    trained_tokens_lost: int
    shards: list[Shard]
    rejects_file: str | None
    first_rejects: Mapping[str, FirstExample]
    first_examples: Mapping[str, FirstExample]

    def shards_once(self) -> list[Shard]:
        """The shards of one of the formats, so that each row is counted once."""
        return [shard for shard in self.shards if shard.format == self.shards[0].format]


def receipt_url(folder: str, split: int, part: int) -> str:
    return join(folder, f"{split:07d}-{part:05d}.json")


def write_receipt(folder: str, receipt: Receipt) -> None:
    write_whole(receipt_url(folder, receipt.split, receipt.part), msgspec.json.encode(receipt, order="deterministic"))


def read_receipts(folder: str, split: int) -> list[Receipt] | None:
    """The receipts of all parts of a split; None where one is missing, so that the split is to be milled."""
    receipts: list[Receipt] = []
    while not receipts or not receipts[-1].last:
        url = receipt_url(folder, split, len(receipts))
        if not exists(url):
            return None
        receipts.append(msgspec.json.decode(read_bytes(url), type=Receipt))
    return receipts
