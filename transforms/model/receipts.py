"""Receipts: what was written for one part of one split. The dataset is committed from them alone.

A receipt is written after all files that it names, so a split that has all its receipts need not be processed again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from transforms.storage.files import exists, join, read_bytes, write_atomically


class Shard(msgspec.Struct, frozen=True):
    """A file of a shard. In most formats a shard is one file; if it is several, the first one counts the rows.

    Attributes:
        file: its name in the folder of shards, until the dataset is committed.
        format: one of OUTPUT_FORMATS.
        split: train or validation.
        rows, tokens, trained_tokens: of the shard; 0 for its further files.
        bytes: the size of the file.
        sha256: of its content, in hexadecimal.
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
    """The first record that was rejected for a reason, or counted under a name.

    Attributes:
        source: the url of its file.
        position: its byte or row there, in words.
        detail: what was found.
    """

    source: str
    position: str
    detail: str


class Receipt(msgspec.Struct, frozen=True):
    """The shards and the outcomes of one part of one split.

    Attributes:
        split, part: their numbers, from 0.
        last: whether the split has no further part.
        read, kept, truncated, dropped, notes, trained_tokens_lost, rendered_by_reference, tokenized_by_reference,
            special_tokens_in_content: as in outcomes.Outcomes.
        rejected: records rejected, by reason.
        shards: the files of rows, of each format, first those of train; none if there is no row.
        rejects_file: the name of the file of rejects in the folder of shards; None if there are none.
        first_rejects: the first record rejected, by reason.
        first_examples: the first record counted, by the name of the count.
        source: the number of the split's source, from 0.
    """

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
    rendered_by_reference: Mapping[str, int]
    tokenized_by_reference: Mapping[str, int]
    shards: list[Shard]
    rejects_file: str | None
    first_rejects: Mapping[str, FirstExample]
    first_examples: Mapping[str, FirstExample]
    source: int = 0
    special_tokens_in_content: Mapping[str, int] = {}

    def shards_once(self) -> list[Shard]:
        """Return the shards of one of the formats, so that each row is counted once."""
        return [shard for shard in self.shards if shard.format == self.shards[0].format]


def receipt_url(folder: str, split: int, part: int) -> str:
    """Return the url of the receipt of a part of a split."""
    return join(folder, f"{split:07d}-{part:05d}.json")


def write_receipt(folder: str, receipt: Receipt) -> None:
    """Write a receipt as JSON to the folder of receipts."""
    url = receipt_url(folder, receipt.split, receipt.part)
    write_atomically(url, msgspec.json.encode(receipt, order="deterministic"))


def read_receipts(folder: str, split: int) -> list[Receipt] | None:
    """Return the receipts of all parts of a split; None if one is missing, so that the split has to be processed."""
    receipts: list[Receipt] = []
    while not receipts or not receipts[-1].last:
        url = receipt_url(folder, split, len(receipts))
        if not exists(url):
            return None
        receipts.append(msgspec.json.decode(read_bytes(url), type=Receipt))
    return receipts
