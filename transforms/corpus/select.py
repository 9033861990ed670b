"""Select: which records each bucket has, and how often, decided in one step once all tasks have sent.

Of records whose examples have the same tokens, the first one of the input stays. Digests are those of tokens, so they
say the same of two records if these are rendered alike: with the same roles, contents, calls and tools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
import pyarrow as pa

from transforms.base.errors import InputError
from transforms.base.phrases import in_bytes
from transforms.corpus.buckets import shards_needed
from transforms.corpus.files import THREADS, encode_table, read_tables
from transforms.corpus.keys import bucket_of, shuffle_keys
from transforms.corpus.mix import Mix, copies_of
from transforms.model.batches import Task, slices_and_places
from transforms.model.receipts import Receipt, Sent, work_of
from transforms.rows.ragged import indices_of, joined, offsets_of
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join
from transforms.storage.writing import write_atomically

# Of so many records duplicates are found and mixes are made, in so many bytes of memory for each.
MOST_RECORDS, _RECORD_BYTES = 100_000_000, 64
# Numbers for the mix are others than those for the order.
_FOR_MIX = 1 << 40
# The columns of an index.
_INDEX: dict[str, Any] = {"position": np.int64, "trained": np.int32, "validation": bool}
_DIGEST: dict[str, Any] = {"high": np.uint64, "low": np.uint64}
# Among the metadata of the table of a bucket.
BLOCKS = b"blocks"


class Block(NamedTuple):
    """What a task has sent to a bucket, and how many rows of the bucket's table are of it.

    Attributes:
        path: of the file, relative to the folder of the dataset.
        start, stop: bytes of the file; stop is exclusive.
        source: the number of the source of the task.
        copy: the number of the copy of each of its records: 0 if it is the first in the dataset.
        rows: how many.
    """

    path: str
    start: int
    stop: int
    source: int
    copy: int
    rows: int


def selected_path(increment: str, bucket: int) -> str:
    """Return the path of the table of a bucket, relative to the folder of the dataset."""
    return join(work_of("", increment), "selected", f"{bucket:07d}")


class SelectRecords(beam.PTransform):
    """Write down which records each bucket has, once all tasks of a plan have sent.

    PCollection[Receipt] -> PCollection[Task], the buckets.

    Args:
        output: the folder of the dataset.
        plan: returns all tasks, with the buckets that they send to.
        seed: of the order and of the mix.
        dedup: whether duplicates are dropped.
        mix: how often the records of each source are there; None for once.
    """

    def __init__(self, output: str, plan: Callable[[], list[Task]], *, seed: int, dedup: bool, mix: Mix | None):
        super().__init__()
        self._select = _Select(output, plan, seed, dedup, mix)

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        sent = receipts | beam.Map(_sent_by) | beam.WithKeys(0) | beam.GroupByKey()
        return sent | beam.ParDo(self._select).with_output_types(Task)


def _sent_by(receipt: Receipt) -> tuple[int, Sent | None]:
    return receipt.task, receipt.sent


class _Select(beam.DoFn):
    def __init__(self, output: str, plan: Callable[[], list[Task]], seed: int, dedup: bool, mix: Mix | None):
        self._output, self._plan = output, plan
        self._seed, self._dedup, self._mix = seed, dedup, mix
        self._failures = FailureWriter()

    def process(self, group: tuple[int, Iterable[tuple[int, Sent | None]]]) -> Iterator[Task]:
        with self._failures:
            sent = {number: file for number, file in group[1] if file}
            buckets = self._selected(sorted(self._plan(), key=lambda task: task.number), sent)
        yield from buckets

    def _selected(self, tasks: Sequence[Task], sent: Mapping[int, Sent]) -> list[Task]:
        groups: defaultdict[range, list[Task]] = defaultdict(list)
        for task in tasks:
            groups[task.sends_to].append(task)
        if self._dedup or self._mix:
            records = self._decided(tasks, sent)
            most = int(records.copies.max(initial=0))
            if most > min(map(len, groups)):
                needed = shards_needed(len(tasks), most)
                raise InputError(
                    f"the mix has {most} copies of some records, and no shard may have two of them, which takes at "
                    f"least {needed} shards. Give --shards {needed}."
                )
            for buckets, group in groups.items():
                self._write(buckets, group, records)
        else:  # a group has all that says what is in its buckets
            for buckets, group in groups.items():
                self._write(buckets, group, _Records(group, sent, self._output))
        return [Task(bucket, (), increment=tasks[0].increment) for buckets in groups for bucket in buckets]

    def _decided(self, tasks: Sequence[Task], sent: Mapping[int, Sent]) -> _Records:
        """Read the indexes of all tasks, and decide how often each record is there."""
        if (count := sum(file.rows for file in sent.values())) > MOST_RECORDS:
            raise InputError(
                f"there are {count:,} records, and duplicates are found and mixes are made among {MOST_RECORDS:,} at "
                f"most, which take {in_bytes(MOST_RECORDS * _RECORD_BYTES)} of memory. Build them in parts."
            )
        records = _Records(tasks, sent, self._output, self._dedup)
        if self._mix is not None:
            taken = [self._in_order(records, number) for number in range(len(self._mix.sources))]
            copies = copies_of(self._mix, [records.trained[numbers] for numbers in taken])
            for numbers, of_source in zip(taken, copies, strict=True):
                records.copies[numbers] = of_source
        return records

    def _in_order(self, records: _Records, source: int) -> np.ndarray:
        """Return the numbers of the records of a source that a mix takes, in a pseudo-random order."""
        tasks = np.flatnonzero(records.sources == source)
        found = indices_of(records.starts[tasks], np.diff(records.starts)[tasks])
        is_taken = ~records.validation[found] & (records.copies[found] > 0)
        keys = records.keys(tasks.tolist(), self._seed, _FOR_MIX)[is_taken]
        return found[is_taken][np.argsort(keys, kind="stable")]

    def _write(self, buckets: range, group: Sequence[Task], records: _Records) -> None:
        """Write the tables of buckets.

        Args:
            buckets: their numbers.
            group: the tasks that send to them.
            records: of these, and maybe of others.
        """
        tasks = [records.numbers[task.number] for task in group if task.number in records.numbers]
        homes = bucket_of(records.keys(tasks, self._seed), len(buckets))
        order = np.argsort(homes, kind="stable")
        bounds = np.searchsorted(homes[order], np.arange(len(buckets) + 1)).tolist()
        members = indices_of(records.starts[tasks], np.diff(records.starts)[tasks])[order]
        most = int(records.copies[members].max(initial=1))

        def write(place: int) -> None:
            """Write the table of a bucket. Copy c of a record is c buckets after its first one."""
            found = []
            for copy in range(most):
                home = (place - copy) % len(buckets)
                block = members[bounds[home] : bounds[home + 1]]
                of_tasks = records.tasks_of(block)
                numbers = np.arange(len(block)) - np.searchsorted(of_tasks, of_tasks)
                rows = np.stack(np.broadcast_arrays(block, of_tasks, numbers, home, copy))
                found.append(rows[:, records.copies[block] > copy] if copy else rows)
            rows = np.concatenate(found, axis=1)
            rows = rows[:, np.argsort(rows[1], kind="stable")]  # in the order of the input
            path = selected_path(group[0].increment, buckets[place])
            write_atomically(join(self._output, path), encode_table(records.table(*rows)))

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, range(len(buckets))))


class _Records:
    """What is known and decided of all records that some tasks have sent, in the order of the input.

    Attributes:
        tasks: those that have sent something, in order.
        numbers: of the same, by their numbers in the plan.
        sources: int64, shape (tasks,): the numbers of their sources.
        starts: int64, shape (tasks + 1,): where the records of each begin.
        positions, trained, validation: shape (records,): their positions in their tasks, how many trained tokens they
            have, and whether they are for validation.
        copies: int32, shape (records,): how often each is in the dataset: once, duplicates never, if they are dropped.

    Args:
        tasks: of a plan, in order.
        sent: by the number of the task, its file, if it has sent something.
        output: the folder of the dataset.
        dedup: whether duplicates are dropped.
    """

    def __init__(self, tasks: Sequence[Task], sent: Mapping[int, Sent], output: str, dedup: bool = False):
        self.tasks = [task for task in tasks if task.number in sent]
        self.numbers = {task.number: number for number, task in enumerate(self.tasks)}
        self.sources = np.array([task.source for task in self.tasks], np.int64)
        self._files = [sent[task.number] for task in self.tasks]
        self.starts = offsets_of(np.array([file.rows for file in self._files], np.int64))
        count = int(self.starts[-1])
        self.copies, self._firsts = np.ones(count, np.int32), np.full(count, -1, np.int32)
        known = {name: np.empty(count, dtype) for name, dtype in (_INDEX | (_DIGEST if dedup else {})).items()}
        indexes = read_tables(output, [(file.path, file.offsets[-2], file.offsets[-1]) for file in self._files])
        for index, (start, stop) in zip(indexes, pairwise(self.starts.tolist()), strict=True):
            for name, values in known.items():
                values[start:stop] = index[name].to_numpy()
        self.positions, self.trained, self.validation, *digests = known.values()
        if dedup:
            self._drop_duplicates(digests)
        slices = [piece for task in self.tasks for piece in task.slices]
        self._first_slices = offsets_of(np.array([len(task.slices) for task in self.tasks], np.int64))
        self._urls = pa.array([piece.url for piece in slices], pa.string())
        self._formats = pa.array([piece.format for piece in slices], pa.string())

    def keys(self, tasks: Iterable[int], seed: int, more: int = 0) -> np.ndarray:
        """Return the pseudo-random numbers of the records of some tasks. more: is added to the numbers of the tasks."""
        bounds = [(self.tasks[task].number, self.starts[task], self.starts[task + 1]) for task in tasks]
        return joined([shuffle_keys(seed, task + more, self.positions[i:j]) for task, i, j in bounds], np.uint64)

    def tasks_of(self, records: np.ndarray) -> np.ndarray:
        """Return the task of each record, as its number among `tasks`. records: their numbers."""
        return np.searchsorted(self.starts, records, "right") - 1

    def _drop_duplicates(self, digests: Sequence[np.ndarray]) -> None:
        """Decide that records with the digest of an earlier one are not there. digests: the halves of each."""
        order = np.lexsort(digests)  # records of one digest stay in the order of the input
        is_same = np.ones(len(order), bool)
        is_same[:1] = False
        for half in digests:
            in_order = half[order]
            is_same[1:] &= in_order[1:] == in_order[:-1]
        firsts, duplicates = np.flatnonzero(~is_same), np.flatnonzero(is_same)
        self._firsts[order[duplicates]] = order[firsts[np.searchsorted(firsts, duplicates) - 1]]
        self.copies[order[duplicates]] = 0

    def table(
        self, records: np.ndarray, tasks: np.ndarray, numbers: np.ndarray, homes: np.ndarray, copies: np.ndarray
    ) -> pa.Table:
        """Return the table of a bucket.

        Args:
            records: int64, shape (rows,): the number of the record of each row.
            tasks: of the same, as tasks_of returns them; ascending.
            numbers: of the same, in their blocks.
            homes: the places of the buckets that they were sent to.
            copies: the numbers of their copies; ascending for each task.
        """
        is_new = (np.diff(tasks, prepend=-1) != 0) | (np.diff(copies, prepend=-1) != 0)
        blocks = []
        for start, stop in pairwise([*np.flatnonzero(is_new).tolist(), len(records)]):
            file, place = self._files[tasks[start]], homes[start]
            block = Block(
                *(file.path, file.offsets[place], file.offsets[place + 1]),
                source=int(self.sources[tasks[start]]),
                copy=int(copies[start]),
                rows=stop - start,
            )
            blocks.append(block)
        firsts = self._firsts[records].astype(np.int64)
        is_there, is_unique = self.copies[records] > 0, firsts < 0
        slices, places = self._origins(records)
        of_slices, of_places = self._origins(np.maximum(firsts, 0))
        used, url_numbers = np.unique(slices, return_inverse=True)
        urls, formats = (
            pa.DictionaryArray.from_arrays(pa.array(url_numbers.astype(np.int32)), values.take(pa.array(used)))
            for values in (self._urls, self._formats)
        )
        reasons = pa.array(["duplicate", "not_in_mix"]).take(pa.array(is_unique.astype(np.int8), mask=is_there))
        columns = {
            "number": numbers,
            "url": urls,
            "format": formats,
            "position": places,
            "reason": reasons,
            "of_url": self._urls.take(pa.array(of_slices, mask=is_unique)),
            "of_position": pa.array(of_places, mask=is_unique),
            "of_source": pa.array(self.sources[self.tasks_of(np.maximum(firsts, 0))], mask=is_unique),
        }
        return pa.table(columns).replace_schema_metadata({BLOCKS: msgspec.json.encode(blocks)})

    def _origins(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the slices of records, among those of all tasks, and their positions in the files of these."""
        slices, places = slices_and_places(self.positions[records])
        return self._first_slices[self.tasks_of(records)] + slices, places
