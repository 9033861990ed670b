"""Send: the examples of a split go to a file, ordered by the bucket that each is for."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from transforms.exchange.duplicates import ENTRY, amount_of, entries_of, sorted_entries
from transforms.exchange.places import bucket_of, places_of
from transforms.model.batches import Labels, Rows, RowTable, Used
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import Sent, work_of
from transforms.model.sent_examples import encode_examples
from transforms.rows.ragged import joined, offsets_of
from transforms.steps.base import Step
from transforms.storage.files import join
from transforms.storage.writing import write_atomically

# Before the examples of each part of a split in a block: how many bytes they are.
LENGTH_BYTES = 8
_NOTHING = np.zeros(0, np.int64)
_NO_ROWS = RowTable(
    ids=np.zeros(0, np.int32),
    labels=np.zeros(0, np.int32),
    offsets=np.zeros(1, np.int64),
    segment_lengths=_NOTHING,
    segment_offsets=np.zeros(1, np.int64),
    sources=_NOTHING,
)


class Sender:
    """Collects the examples of a split, part by part, and writes them with its last part.

    Args:
        output: the folder of the dataset.
        seed: of the buckets.
        packing: of the rows, one of PACKINGS.
        index: whether the digests of its records are written, too.
    """

    def __init__(self, *, output: str, seed: int, packing: str, index: bool):
        self._output = output
        self._seed = seed
        self._packing = packing
        self._index = index
        self._blocks: list[list[bytes]] = []
        self._entries: list[np.ndarray] = []

    def __call__(self, batch: Labels) -> Rows:
        split, source = batch.split, batch.source
        if batch.part == 0:  # also of a split that is tried again
            self._blocks, self._entries = [[] for _ in split.sends_to], []
        places = places_of(self._seed, split.number, source.positions)
        buckets = bucket_of(places, len(split.sends_to))
        order = np.argsort(buckets, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(buckets[order])) + 1):
            if len(rows):
                records = len(source.take(rows).first_rows())
                content = encode_examples(batch.take(rows, Outcomes(read=records)))
                self._blocks[buckets[rows[0]]] += len(content).to_bytes(LENGTH_BYTES, "little"), content
        if self._index:
            self._entries.append(entries_of(batch))
        # The records of these examples have their outcomes in the buckets, and those of the others here.
        outcomes = batch.outcomes
        outcomes = msgspec.structs.replace(outcomes, read=len(outcomes.drops) + len(outcomes.rejects))
        return batch.succeeded_by(
            Rows,
            outcomes,
            train=_NO_ROWS,
            validation=_NO_ROWS,
            packing=self._packing,
            source=source,
            used=Used(_NOTHING, _NOTHING.astype(bool), _NOTHING.astype(bool), _NOTHING, _NOTHING),
            sent=self._write(batch) if batch.last else None,
            tokens_sent=len(batch.ids),
        )

    def _write(self, batch: Labels) -> Sent | None:
        """Write the file of a split. None if no example is left."""
        blocks = [b"".join(pieces) for pieces in self._blocks]
        self._blocks = []
        if not any(blocks):
            return None
        path = join(work_of("", batch.split.increment), "sent", f"{batch.split.number:07d}")
        offsets = offsets_of(np.array([len(block) for block in blocks])).tolist()
        amount = amount_of(joined(self._entries, ENTRY))
        entries, starts = sorted_entries(self._entries) if self._index else (b"", [])
        self._entries = []
        content = b"".join([*blocks, entries])
        write_atomically(join(self._output, path), content)
        index = [offsets[-1] + start for start in starts]
        return Sent(path, hashlib.sha256(content).hexdigest(), offsets, index, *amount)


class SendExamples(Step):
    """Write the examples of each split to a file, for the buckets that it sends to.

    PCollection[Parts[Labels]] -> PCollection[Parts[Rows]], without rows: with the outcomes of those records that have
    no example.

    Args:
        output: the folder of the dataset, at any url that fsspec opens.
        seed: of the buckets that examples are sent to.
        packing: of the rows, one of PACKINGS.
        index: whether the digests of its records are written, too, to find duplicates, or to choose of them.
    """

    input, output = Labels, Rows

    def __init__(self, output: str, *, seed: int, packing: str, index: bool):
        options: dict[str, Any] = {"output": output, "seed": seed, "packing": packing, "index": index}
        super().__init__(Sender, **options)
