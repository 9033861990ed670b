"""Select: which records each bucket has, and how often, decided in one step once all tasks have sent.

Of records whose examples have the same tokens, the first one of the input stays. Digests are those of tokens, so they
say the same of two records if these are rendered alike: with the same roles, contents, calls and tools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from rich.filesize import decimal

from transforms.base.errors import InputError
from transforms.corpus.buckets import MOST_RECORDS, shards_needed
from transforms.corpus.files import encode_table, in_threads, read_tables
from transforms.corpus.keys import bucket_keys, shuffle_keys
from transforms.corpus.mix import Mix, count_copies
from transforms.model.batches import Task, slices_and_places
from transforms.model.receipts import Receipt, Sent, work_folder
from transforms.rows.ragged import lengths_to_offsets, slice_indices
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join
from transforms.storage.writing import write_atomically

# Of memory for each record.
_RECORD_BYTES = 64
_NOTHING_SENT = Sent("", 0, "")
# Numbers for the mix are others than those for the order.
_FOR_MIX = 1 << 40
# The columns of an index.
_INDEX: dict[str, Any] = {"position": np.int64, "trained": np.int32, "validation": bool}
_DIGEST: dict[str, Any] = {"high": np.uint64, "low": np.uint64}


def selected_path(increment: str, bucket: int) -> str:
    """Return the path of the table of a bucket, relative to the folder of the dataset."""
    return join(work_folder("", increment), "selected", f"{bucket:07d}")


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
        self._select = _Select(FailureWriter(), output, plan, seed, dedup, mix)

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        sent = receipts | beam.Map(_sent_by) | beam.GroupByKey() | beam.Values()
        return sent | "decide" >> beam.FlatMap(self._select).with_output_types(Task)


def _sent_by(receipt: Receipt) -> tuple[int, tuple[int, Sent | None]]:
    return 0, (receipt.task, receipt.sent)


@dataclass(frozen=True)
class _Select:
    failures: FailureWriter
    output: str
    plan: Callable[[], list[Task]]
    seed: int
    dedup: bool
    mix: Mix | None

    def __call__(self, files: Iterable[tuple[int, Sent | None]]) -> list[Task]:
        with self.failures:
            sent = {number: file for number, file in files if file}
            return self._selected(sorted(self.plan(), key=lambda task: task.number), sent)

    def _selected(self, tasks: Sequence[Task], sent: Mapping[int, Sent]) -> list[Task]:
        groups = _group_tasks(tasks)
        if self.dedup or self.mix:
            self._write(self._decided(tasks, sent, min(map(len, groups))))
        else:  # a group has all that says what is in its buckets
            for numbers in groups.values():
                self._write(_Records([tasks[number] for number in numbers], sent, self.output))
        return [Task(bucket, (), increment=tasks[0].increment) for buckets in groups for bucket in buckets]

    def _decided(self, tasks: Sequence[Task], sent: Mapping[int, Sent], buckets: int) -> _Records:
        """Read the indexes of all tasks, and decide how often each record is there. buckets: at least of each task."""
        if (count := sum(file.rows for file in sent.values())) > MOST_RECORDS:
            raise InputError(
                f"there are {count:,} records, and duplicates are found and mixes are made among {MOST_RECORDS:,} at "
                f"most, which take {decimal(MOST_RECORDS * _RECORD_BYTES)} of memory. Build them in parts."
            )
        records = _Records(tasks, sent, self.output, self.dedup)
        if self.mix is not None:
            taken = [self._in_order(records, number) for number in range(len(self.mix.sources))]
            copies = count_copies(self.mix, [records.trained[numbers] for numbers in taken])
            for numbers, source_copies in zip(taken, copies, strict=True):
                records.copies[numbers] = source_copies
        if (most := int(records.copies.max(initial=0))) > buckets:
            needed = shards_needed(len(tasks), most)
            raise InputError(
                f"the mix has {most} copies of some records, and no shard may have two of them, which takes at "
                f"least {needed} shards. Give --shards {needed}."
            )
        return records

    def _in_order(self, records: _Records, source: int) -> np.ndarray:
        """Return the numbers of the records of a source that a mix takes, in a pseudo-random order."""
        is_in_source = (records.sources == source)[records.task_places]
        taken = np.flatnonzero(is_in_source & ~records.validation & (records.copies > 0))
        return taken[np.argsort(records.keys(taken, self.seed, _FOR_MIX), kind="stable")]

    def _write(self, records: _Records) -> None:
        """Write the tables of all buckets that tasks send to."""

        def write(bucket: int, *rows: np.ndarray) -> None:
            path = selected_path(records.tasks[0].increment, bucket)
            write_atomically(join(self.output, path), encode_table(records.table(*rows)))

        for _ in in_threads(write, self._buckets(records)):
            pass

    def _buckets(self, records: _Records) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield each bucket with its records, the places of the buckets that these were sent to, and the numbers of
        the copies. Copy c of a record is c buckets after its first one.
        """
        for buckets, tasks in _group_tasks(records.tasks).items():
            members = slice_indices(records.starts[tasks], np.diff(records.starts)[tasks])
            homes = bucket_keys(records.keys(members, self.seed), len(buckets))
            order = np.argsort(homes, kind="stable")
            bounds = np.searchsorted(homes[order], np.arange(len(buckets) + 1)).tolist()
            members = members[order]
            for place, bucket in enumerate(buckets):
                rounds = []
                for copy in range(int(records.copies[members].max(initial=1))):
                    home = (place - copy) % len(buckets)
                    sent = members[bounds[home] : bounds[home + 1]]
                    there = sent[records.copies[sent] > copy] if copy else sent
                    rounds.append(np.stack(np.broadcast_arrays(there, home, copy)))
                rows = np.concatenate(rounds, axis=1)
                # In the order of the input.
                yield bucket, *rows[:, np.argsort(records.task_places[rows[0]], kind="stable")]


def _group_tasks(tasks: Sequence[Task]) -> dict[range, list[int]]:
    """The places of tasks, by the buckets that they send to."""
    groups: defaultdict[range, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        groups[task.sends_to].append(place)
    return groups


class _Records:
    """What is known and decided of all records that some tasks have sent, in the order of the input.

    Attributes:
        tasks: in order.
        sources: int64, shape (tasks,): the numbers of their sources.
        starts: int64, shape (tasks + 1,): where the records of each begin.
        task_places: int32, shape (records,): the places of their tasks.
        positions, trained, validation: shape (records,): their positions in their tasks, how many trained tokens they
            have, and whether they are for validation.
        copies: int32, shape (records,): how often each is in the dataset: once, duplicates never, if they are dropped.
        firsts: int32, shape (records,): of which record each is a duplicate; its own number if it is of none.

    Args:
        tasks: of a plan, in order.
        sent: by the number of the task, its file, if it has sent something.
        output: the folder of the dataset.
        dedup: whether duplicates are dropped.
    """

    def __init__(self, tasks: Sequence[Task], sent: Mapping[int, Sent], output: str, dedup: bool = False):
        self.tasks = tasks
        self.sources = np.array([task.source for task in tasks], np.int64)
        files = [sent.get(task.number, _NOTHING_SENT) for task in tasks]
        counts = np.array([file.rows for file in files], np.int64)
        self.starts = lengths_to_offsets(counts)
        count = int(self.starts[-1])
        self.task_places = np.repeat(np.arange(len(tasks), dtype=np.int32), counts)
        known = {name: np.empty(count, dtype) for name, dtype in (_INDEX | (_DIGEST if dedup else {})).items()}
        ranges = [(file.path, file.offsets[-2], file.offsets[-1]) for file in files if file.rows]
        for index, start in zip(read_tables(output, ranges), self.starts[:-1][counts > 0].tolist(), strict=True):
            for name, values in known.items():
                values[start : start + len(index)] = index[name].to_numpy()
        self.positions, self.trained, self.validation, *digests = known.values()
        self.copies, self.firsts = np.ones(count, np.int32), np.arange(count, dtype=np.int32)
        if dedup:
            self._drop_duplicates(digests)
        self._paths = pa.array([file.path for file in files], pa.string())
        self._blocks = np.array([offset for file in files for offset in file.offsets], np.int64)
        self._first_blocks = lengths_to_offsets(np.array([len(file.offsets) for file in files], np.int64))
        slices = [piece for task in tasks for piece in task.slices]
        self._first_slices = lengths_to_offsets(np.array([len(task.slices) for task in tasks], np.int64))
        self._urls = pa.array([piece.url for piece in slices], pa.string())
        self._formats = pa.array([piece.format for piece in slices], pa.string())

    def keys(self, records: np.ndarray, seed: int, more: int = 0) -> np.ndarray:
        """Return the pseudo-random numbers of records. more: is added to the numbers of their tasks."""
        tasks = np.array([task.number + more for task in self.tasks], np.uint64)
        return shuffle_keys(seed, tasks[self.task_places[records]], self.positions[records])

    def _drop_duplicates(self, digests: Sequence[np.ndarray]) -> None:
        """Decide that records with the digest of an earlier one are not there. digests: the halves of each."""
        order = np.lexsort(digests).astype(np.int32)  # records of one digest stay in the order of the input
        is_first = np.ones(len(order), bool)
        is_first[1:] = np.any([np.diff(half[order]) != 0 for half in digests], axis=0)
        self.firsts[order] = order[is_first][np.cumsum(is_first, dtype=np.int32) - 1]
        self.copies[order[~is_first]] = 0

    def table(self, records: np.ndarray, homes: np.ndarray, copies: np.ndarray) -> pa.Table:
        """Return the table of a bucket: where each of its records was sent to, where it comes from, and why it is not
        in the dataset, if so.

        Args:
            records: int64, shape (rows,): their numbers.
            homes: the places of the buckets that they were sent to.
            copies: the numbers of the copies.
        """
        tasks, firsts = self.task_places[records], self.firsts[records]
        blocks = self._first_blocks[tasks] + homes
        is_there, is_unique = self.copies[records] > 0, firsts == records
        (slices, _), (first_slices, first_places) = self._origins(records), self._origins(firsts)
        reasons = pa.array(["duplicate", "not_in_mix"])
        columns = {
            "path": self._paths.take(pa.array(tasks)).dictionary_encode(),
            "start": self._blocks[blocks],
            "stop": self._blocks[blocks + 1],
            "source": self.sources[tasks],
            "is_copy": copies > 0,
            "position": self.positions[records],
            "url": self._urls.take(pa.array(slices)).dictionary_encode(),
            "format": self._formats.take(pa.array(slices)).dictionary_encode(),
            "reason": reasons.take(pa.array(is_unique.astype(np.int8), mask=is_there)),
            "of_url": self._urls.take(pa.array(first_slices, mask=is_unique)),
            "of_position": pa.array(first_places, mask=is_unique),
            "of_source": pa.array(self.sources[self.task_places[firsts]], mask=is_unique),
        }
        return pa.table(columns)

    def _origins(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the slices of records, among those of all tasks, and their positions in the files of these."""
        slices, places = slices_and_places(self.positions[records])
        return self._first_slices[self.task_places[records]] + slices, places
