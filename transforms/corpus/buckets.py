"""Buckets: to which of them each task sends, by the plan and the seed alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transforms.corpus.keys import shuffle_keys
from transforms.model.batches import Task

# With more tasks than that there are several groups, and a task sends to the buckets of its own: a bucket reads a
# block of each task that sends to it, and at a store each block is a request.
_MOST_TASKS_IN_GROUP = 256
# The largest task by default, of which a bucket has as much.
MOST_TASK_BYTES = 64 << 20
# Of so many records duplicates are found and mixes are made.
MOST_RECORDS = 100_000_000
# With a mix there are so many buckets at least, for as many copies of a record.
_MIX_BUCKETS = 16


def unshuffled(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks that send all to a bucket of their own."""
    return [replace(task, sends_to=range(number, number + 1)) for number, task in enumerate(tasks, len(tasks))]


def bucket_count(tasks: int, shards: int | None, copies: int = 0) -> int:
    """Return the number of buckets of so many tasks.

    Args:
        shards: how many were asked for; None for as many as there are tasks.
        copies: with a mix, how many a record has at most, as far as that is known; 0 without a mix.
    """
    if shards is not None:
        return shards
    return max(tasks, _MIX_BUCKETS, shards_needed(tasks, copies)) if copies and tasks else tasks


def shards_needed(tasks: int, copies: int) -> int:
    """Return how many shards it takes that no two copies of a record are in one. copies: of a record, at most."""
    return -(-tasks // _MOST_TASKS_IN_GROUP) * copies


def with_buckets(tasks: Sequence[Task], shards: int | None, seed: int, copies: int = 0) -> list[Task]:
    """Return tasks with the numbers of the buckets that they send to, which follow those of the tasks.

    Tasks of each source are evenly spread over the groups, in pseudo-random order.

    Args:
        tasks: all of a plan, in order.
        shards, copies: as of bucket_count.
        seed: of the order.
    """
    buckets = bucket_count(len(tasks), shards, copies)
    groups = min(-(-len(tasks) // _MOST_TASKS_IN_GROUP), buckets)
    order = _dealt(tasks, seed)
    sending = list(tasks)
    for group in range(groups):
        first, stop = (buckets * each // groups for each in (group, group + 1))
        for number in order[len(tasks) * first // buckets : len(tasks) * stop // buckets]:
            sending[number] = replace(tasks[number], sends_to=range(len(tasks) + first, len(tasks) + stop))
    return sending


def _dealt(tasks: Sequence[Task], seed: int) -> list[int]:
    """The numbers of tasks in an order in which each stretch has its share of every source."""
    keys = shuffle_keys(seed, -1 % 2**64, np.arange(len(tasks)))
    by_source: defaultdict[int, list[int]] = defaultdict(list)
    for number in np.argsort(keys, kind="stable").tolist():
        by_source[tasks[number].source].append(number)
    share = {
        number: ((rank + 0.5) / len(numbers), source)
        for source, numbers in by_source.items()
        for rank, number in enumerate(numbers)
    }
    return sorted(share, key=share.__getitem__)
