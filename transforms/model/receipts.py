"""Receipts: what was written for one shard of a task. The dataset is committed from them alone.

A receipt is written after all files that it names, so a task that has all its receipts need not be processed again.
Its last field is a checksum, which the increment is a part of: a receipt that is damaged, or of another increment, does
not count.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from transforms.model.counts import Sums
from transforms.storage.files import join, read_bytes
from transforms.storage.writing import write_atomically

_CHECKSUM = b',"checksum":"'
# Of a file that a receipt names, below the folder of its increment in one of those of the dataset.
_RECEIPT_NAME = re.compile(r"(\d{7,})-(\d{5,})\.json")


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file: of a shard, of exceptions, or of what is sent to buckets.

    In most formats a shard is one file; if it is several, the first one counts the rows.

    Attributes:
        path: of the file, relative to the folder of the dataset.
        bytes: the size of the file.
        sha256: of its content, in hexadecimal.
        format: of a shard: one of OUTPUT_FORMATS.
        split: of a shard: train or validation.
        rows: of a shard, or those that another file has.
        tokens, trained_tokens: of a shard.
    """

    path: str
    bytes: int
    sha256: str
    format: str = ""
    split: str = ""
    rows: int = 0
    tokens: int = 0
    trained_tokens: int = 0


class Sent(File, frozen=True):
    """The file of the examples that a task has sent to the buckets of an exchange: a row for each of its records.

    Attributes:
        offsets: the bytes of the file at which what each bucket gets begins, then the index of all, and its end.
    """

    offsets: list[int] = []


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one shard of a task, and what was counted of its records.

    Attributes:
        task, shard: their numbers, from 0.
        last: whether the task has no further shard.
        files: of rows, of each format, first those of train; and of exceptions. None that would have no row.
        counts: of `sums`, as JSON, which takes a tenth of their memory: all receipts are held at once.
        sent: the file of the examples that were sent to buckets; None if none was.
        increment: the id of the increment of the dataset that the task belongs to.
    """

    task: int
    shard: int
    last: bool
    files: list[File]
    counts: msgspec.Raw
    sent: Sent | None = None
    increment: str = ""

    def sums(self) -> Sums:
        """Return what was counted of its records."""
        return _decode_sums(self.counts)

    def all_files(self) -> list[File]:
        """Return all that was written before the receipt."""
        return [*self.files, *filter(None, [self.sent])]


_decode_sums = msgspec.json.Decoder(Sums).decode
_decode = msgspec.json.Decoder(Receipt).decode


def work_folder(output: str, increment: str) -> str:
    """Return the url of the folder with the job, the plan and the receipts of an increment, until it is committed."""
    return join(output, "_chatmill", "building", increment)


def receipt_name(what: str, increment: str, task: int, shard: int = 0) -> str:
    """Return the name of a file of an increment, without its suffix, such as train-0123456789abcdef-000007-000."""
    return f"{what}-{increment}-{task:06d}-{shard:03d}"


def receipt_url(folder: str, task: int, shard: int) -> str:
    """Return the url of the receipt of a shard of a task."""
    return join(folder, f"{task:07d}-{shard:05d}.json")


def parse_receipt_name(name: str) -> tuple[int, int] | None:
    """Return the task and the shard of a receipt from the name of its file; None if it is another file."""
    match = _RECEIPT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def write_receipt(folder: str, receipt: Receipt) -> None:
    """Write a receipt as JSON to the folder of receipts."""
    content = msgspec.json.encode(receipt)
    content = content[:-1] + _CHECKSUM + _checksum(content, receipt.increment) + b'"}'
    write_atomically(receipt_url(folder, receipt.task, receipt.shard), content)


def read_receipt(url: str, increment: str) -> Receipt:
    """Read a receipt of an increment.

    Raises:
        ValueError: if it is damaged, belongs to another increment, or names a file outside of the folders of its own.
        FileNotFoundError: if it does not exist.
    """
    content, _, checksum = read_bytes(url).rpartition(_CHECKSUM)
    content += b"}"
    if checksum != _checksum(content, increment) + b'"}':
        raise ValueError(f"{url} is damaged, or a receipt of another increment")
    receipt = _decode(content)
    own = rf"\w+/\w+-{increment}-[\w-]+(\.\w+)*|_chatmill/building/{increment}/sent/\w+"
    for file in receipt.all_files():
        if not re.fullmatch(own, file.path):
            raise ValueError(f"{url} names the file {file.path!r}, which is not one of the increment {increment}")
    return receipt


def read_receipts(folder: str, task: int, shards: int, increment: str) -> list[Receipt]:
    """Read the receipts of a task: of all its shards; none if there are more, so that the task has to be processed.

    Args:
        folder: of the receipts.
        task: its number.
        shards: how many receipts of it there are.
        increment: the id of the increment that they belong to.

    Raises:
        ValueError: if one is damaged, belongs to another increment, or is not of this task and shard.
        FileNotFoundError: if one does not exist.
    """
    receipts = [read_receipt(receipt_url(folder, task, shard), increment) for shard in range(shards)]
    if [(receipt.task, receipt.shard) for receipt in receipts] != [(task, shard) for shard in range(shards)]:
        raise ValueError(f"{receipt_url(folder, task, 0)} and its further shards are receipts of others")
    return receipts if receipts[-1].last else []


def _checksum(content: bytes, increment: str) -> bytes:
    return hashlib.sha256(increment.encode() + content).hexdigest().encode()
