"""Known: the records that a dataset had before an increment, or that other datasets have, by the digests in ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.base.errors import InputError, StoreError
from transforms.storage.files import join, open_file

# Of the ledger.
_COLUMNS = ["digest", "source", "position"]


class KnownLedger(msgspec.Struct, frozen=True):
    """A file of a ledger whose records are known.

    Attributes:
        dataset: the url of the dataset that has it, and its version; empty for the dataset that is built.
        folder: of the same, empty likewise.
        path: of the file, relative to the folder.
        sha256: of its content.
    """

    dataset: str
    folder: str
    path: str
    sha256: str


class KnownRecords(NamedTuple):
    """Records of ledgers, in the order of these.

    Attributes:
        digests: uint64, shape (records, 2): of their tokens.
        records: the url of the file of each, and its position there.
        datasets: the name of the dataset of each; empty for the dataset that is built.
    """

    digests: np.ndarray
    records: list[tuple[str, int]]
    datasets: list[str]


_decode = msgspec.json.Decoder(KnownLedger).decode


def encode_known(ledgers: Sequence[KnownLedger]) -> bytes:
    """Return the content of the file that lists ledgers: JSON lines."""
    return b"".join(msgspec.json.encode(ledger) + b"\n" for ledger in ledgers)


def decode_known(content: bytes) -> list[KnownLedger]:
    """Return the ledgers that the content of such a file lists."""
    return [_decode(line) for line in content.splitlines()]


def known_records(ledgers: Sequence[KnownLedger], output: str, wanted: np.ndarray) -> KnownRecords:
    """Read those records of ledgers that have the first half of a digest in common with others.

    Args:
        ledgers: are read one after the other.
        output: the folder of the dataset that is built.
        wanted: uint64, shape (any,): the first halves of digests.

    Raises:
        InputError: if a ledger is missing or damaged.
    """
    found, records, datasets = [np.zeros((0, 2), np.uint64)], list[tuple[str, int]](), list[str]()
    for ledger in ledgers:
        url = join(ledger.folder or output, ledger.path)
        try:
            with open_file(url) as file:
                lines = pq.ParquetFile(file).read(_COLUMNS, use_threads=False)
        except StoreError:
            raise
        except FileNotFoundError:
            raise InputError(f"{url}: this ledger was removed meanwhile. Run the same command again.") from None
        except (OSError, ValueError) as error:  # those of Arrow are one of these
            raise InputError(f"{url}: this ledger is damaged ({error}). Copy it again.") from None
        lines = lines.filter(pc.is_valid(lines["digest"])).combine_chunks()
        [column] = lines["digest"].chunks or [pa.array([], pa.binary(16))]
        digests = np.frombuffer(column.buffers()[1] or b"", "<u8", 2 * len(lines)).reshape(-1, 2)
        is_wanted = np.isin(digests[:, 0], wanted)
        lines = lines.filter(pa.array(is_wanted))
        found.append(digests[is_wanted])
        records += zip(lines["source"].to_pylist(), lines["position"].to_pylist(), strict=True)
        datasets += [ledger.dataset] * len(lines)
    return KnownRecords(np.concatenate(found), records, datasets)
