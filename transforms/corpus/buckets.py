"""Buckets: to which of them each task sends, by the plan and the seed alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transforms.corpus.keys import shuffle_keys
from transforms.model.batches import Split

# With more splits than that there are several groups, and a split sends to the buckets of its own: a bucket reads a
# block of each split that sends to it, and at a store each block is a request.
_MOST_SPLITS_IN_GROUP = 256
# The largest split by default, of which a bucket has as much.
MOST_SPLIT_BYTES = 64 << 20
# With a mix there are so many buckets at least, for as many copies of a record.
_BUCKETS_OF_MIX = 16


def unshuffled(splits: Sequence[Split]) -> list[Split]:
    """Return splits that send all to a bucket of their own."""
    return [replace(split, sends_to=range(number, number + 1)) for number, split in enumerate(splits, len(splits))]


def bucket_count(splits: int, shards: int | None, copies: int = 0) -> int:
    """Return the number of buckets.

    Args:
        splits: how many there are.
        shards: how many were asked for; None for as many as there are splits.
        copies: with a mix, how many a record has at most, as far as that is known; 0 without a mix.
    """
    if shards is not None:
        return shards
    return max(splits, _BUCKETS_OF_MIX, shards_needed(splits, copies)) if copies and splits else splits


def shards_needed(splits: int, copies: int) -> int:
    """Return how many shards it takes that no two copies of a record are in one.

    Args:
        splits: how many there are.
        copies: how many a record has at most.
    """
    return -(-splits // _MOST_SPLITS_IN_GROUP) * copies


def with_buckets(splits: Sequence[Split], shards: int | None, seed: int, copies: int = 0) -> list[Split]:
    """Return splits with the numbers of the buckets that they send to, which follow those of the splits.

    Splits of each source are evenly spread over the groups, in pseudo-random order.

    Args:
        splits: all of a plan, in order.
        shards, copies: as of bucket_count.
        seed: of the order.
    """
    buckets = bucket_count(len(splits), shards, copies)
    groups = min(-(-len(splits) // _MOST_SPLITS_IN_GROUP), buckets)
    order = _dealt(splits, seed)
    found = list(splits)
    for group in range(groups):
        first, stop = (buckets * each // groups for each in (group, group + 1))
        for number in order[len(splits) * first // buckets : len(splits) * stop // buckets]:
            found[number] = replace(splits[number], sends_to=range(len(splits) + first, len(splits) + stop))
    return found


def _dealt(splits: Sequence[Split], seed: int) -> list[int]:
    """The numbers of splits in an order in which each stretch has its share of every source."""
    keys = shuffle_keys(seed, -1 % 2**64, np.arange(len(splits)))
    of_sources: defaultdict[int, list[int]] = defaultdict(list)
    for number in np.argsort(keys, kind="stable").tolist():
        of_sources[splits[number].source].append(number)
    share = {
        number: ((rank + 0.5) / len(numbers), source)
        for source, numbers in of_sources.items()
        for rank, number in enumerate(numbers)
    }
    return sorted(share, key=share.__getitem__)
