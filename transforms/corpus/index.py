"""Index: a task writes its examples grouped by the bucket that each is for, and an index of its records."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from transforms.corpus.examples import joined_examples, make_table
from transforms.corpus.files import encode_table
from transforms.corpus.keys import bucket_keys, shuffle_keys
from transforms.model.batches import Labels, Rows, RowTable, Used
from transforms.model.receipts import Sent, work_folder
from transforms.rows import IGNORED
from transforms.rows.ragged import lengths_to_offsets
from transforms.steps.base import Step
from transforms.storage.files import join
from transforms.storage.writing import write_atomically

_NOTHING = np.zeros(0, np.int64)
_NO_ROWS = RowTable(
    ids=np.zeros(0, np.int32),
    labels=np.zeros(0, np.int32),
    segment_lengths=_NOTHING,
    segment_offsets=np.zeros(1, np.int64),
    example_index=_NOTHING,
)


class Sender:
    """Collects the examples of a task, and writes them with its last chunk. Takes what SendExamples takes."""

    def __init__(self, *, output: str, seed: int, packing: str, dedup: bool):
        self._output = output
        self._seed = seed
        self._packing = packing
        self._dedup = dedup
        self._examples: list[pa.Table] = []
        self._index: list[pa.Table] = []

    def __call__(self, batch: Labels) -> Rows:
        if batch.chunk == 0:  # also of a task that is tried again
            self._examples, self._index = [], []
        self._examples.append(make_table(batch))
        self._index.append(_index_records(batch, self._dedup))
        # The records of these examples have their outcomes in the buckets, and those of the others here.
        outcomes, records = batch.outcomes, batch.facts.records()
        outcomes = msgspec.structs.replace(outcomes, read=len(outcomes.drops) + len(outcomes.rejects))
        return batch.succeeded_by(
            Rows,
            outcomes,
            train=_NO_ROWS,
            validation=_NO_ROWS,
            packing=self._packing,
            facts=batch.facts,
            used=Used(*np.zeros((3, records), bool), *np.zeros((2, records), np.int64)),
            sent=self._write(batch) if batch.last else None,
            tokens_sent=len(batch.ids),
        )

    def _write(self, batch: Labels) -> Sent | None:
        """Write the file of a task. None if no example is left."""
        task, examples, index = batch.task, joined_examples(self._examples), pa.concat_tables(self._index)
        self._examples, self._index = [], []
        if not len(examples):
            return None
        positions = examples["position"].to_numpy()
        buckets = bucket_keys(shuffle_keys(self._seed, task.number, positions), len(task.sends_to))
        order = np.lexsort((positions, buckets))
        bounds = np.searchsorted(buckets[order], np.arange(len(task.sends_to) + 1)).tolist()
        blocks = [
            encode_table(examples.take(pa.array(order[start:stop]))) if start < stop else b""
            for start, stop in pairwise(bounds)
        ]
        blocks.append(encode_table(index.sort_by("position")))
        content = b"".join(blocks)
        path = join(work_folder("", task.increment), "sent", f"{task.number:07d}")
        write_atomically(join(self._output, path), content)
        offsets = lengths_to_offsets(np.array([len(block) for block in blocks])).tolist()
        return Sent(path, len(content), hashlib.sha256(content).hexdigest(), rows=len(index), offsets=offsets)


def _index_records(batch: Labels, dedup: bool) -> pa.Table:
    """What of each record of a batch decides whether it is in the dataset: its position, how many trained tokens it
    has, and whether it is for validation; and to find duplicates, the digest of its tokens and of which of these are
    trained on, of 128 bits in two numbers.
    """
    facts = batch.facts
    firsts = facts.first_rows()
    columns = {
        "position": facts.positions[firsts],
        "trained": np.bincount(facts.record_numbers(), batch.trained_tokens, len(firsts)).astype(np.int64),
        "validation": facts.validation[firsts],
    }
    if dedup:
        columns["high"], columns["low"] = _digests(batch, [*firsts.tolist(), len(facts.positions)])
    return pa.table(columns)


def _digests(batch: Labels, bounds: list[int]) -> np.ndarray:
    """The digests of records: uint64, shape (2, records). bounds: the first row of each, and the end of the last."""
    ids, offsets = batch.ids.astype("<i4", copy=False), batch.offsets
    # Of two records that are trained on in other places, the first may have no label left after cutting.
    is_trained = batch.labels != IGNORED
    digests = list[bytes]()
    for first, stop in pairwise(bounds):
        digest = hashlib.blake2b(ids[offsets[first] : offsets[stop]].data, digest_size=16)
        digest.update(is_trained[offsets[first] : offsets[stop]].data)
        if stop > first + 1:  # several examples: where they end counts, too
            digest.update(np.diff(offsets[first : stop + 1]).tobytes())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T


class SendExamples(Step):
    """Write the examples of each task to a file, for the buckets that it sends to.

    PCollection[Chunks[Labels]] -> PCollection[Chunks[Rows]], without rows: with the outcomes of those records that have
    no example.

    Args:
        output: the folder of the dataset, at any url that fsspec opens.
        seed: of the buckets that examples are sent to.
        packing: of the rows, one of PACKINGS.
        dedup: whether duplicates are to be found.
    """

    input, output = Labels, Rows

    def __init__(self, output: str, *, seed: int, packing: str, dedup: bool):
        super().__init__(Sender, output=output, seed=seed, packing=packing, dedup=dedup)
