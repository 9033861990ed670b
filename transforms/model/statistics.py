"""Histograms: their buckets, how numbers are counted, and how they are shown; and the sums of what is rare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from transforms.model.counts import Counts, Histogram, TraceEvents, Unread

# The lower bounds of buckets: each number below 16, and then 8 buckets for each power of two.
_LENGTHS = np.concatenate([np.arange(16), *((8 + np.arange(8)) << power for power in range(1, 40))])
_PERCENT = np.arange(0, 101, 5)
# The names whose unread text, or events, are counted in a chunk; keys may differ in each record.
_MOST_UNREAD = 100

_C = TypeVar("_C", bound=Counts)


def bucket_bounds(histogram: str) -> np.ndarray:
    """Return the lower bounds of all buckets of a histogram, by its name: int64, ascending."""
    return _PERCENT if histogram == "trained_percent" else _LENGTHS


def make_histogram(name: str, numbers: np.ndarray) -> Histogram:
    """Count numbers.

    Args:
        name: of the histogram, which decides its buckets.
        numbers: int64, shape (any but 0,), none below 0.
    """
    bounds = bucket_bounds(name)
    counts = np.bincount(np.searchsorted(bounds, numbers, side="right") - 1)
    used = np.flatnonzero(counts)
    buckets = [*zip(bounds[used].tolist(), counts[used].tolist(), strict=True)]
    return Histogram(buckets, len(numbers), int(numbers.sum()), int(numbers.min()), int(numbers.max()))


def histogram_bins(name: str, histogram: Mapping[str, Any], most: int) -> list[tuple[int, int, int]]:
    """Return a histogram in few bins: the first and the last number of each, and how many numbers are in it.

    Args:
        name: of the histogram.
        histogram: as the manifest has it.
        most: how many bins at most; adjacent buckets are one bin, equally many in each but the last.
    """
    counts = dict(histogram["buckets"])
    bounds = [bound for bound in bucket_bounds(name).tolist() if min(counts) <= bound <= histogram["max"]]
    at_once = -(-len(bounds) // most)
    ends = [*bounds[at_once::at_once], histogram["max"] + 1]
    return [
        (max(first, histogram["min"]), end - 1, sum(counts.get(bound, 0) for bound in bounds if first <= bound < end))
        for first, end in zip(bounds[::at_once], ends, strict=True)
    ]


def at_most(name: str, histogram: Mapping[str, Any], percent: int) -> int:
    """Return a number that a percentage of all do not exceed: the last one of a bucket. histogram: of the manifest."""
    bounds = bucket_bounds(name)
    below = accumulate(count for _, count in histogram["buckets"])
    reached = (100 * count >= percent * histogram["count"] for count in below)
    bound = next(bound for (bound, _), is_reached in zip(histogram["buckets"], reached, strict=True) if is_reached)
    following = bounds[np.searchsorted(bounds, bound, "right") :][:1].tolist()
    return min([histogram["max"], *(end - 1 for end in following)])


def sum_unread(records: Iterable[Mapping[str, int]]) -> dict[str, Unread]:
    """Add up the characters that were not read of records, by name; those of rare names together, as `others`."""
    times, sums = dict[str, int](), dict[str, int]()
    for record in records:
        for name, characters in record.items():
            times[name] = times.get(name, 0) + 1
            sums[name] = sums.get(name, 0) + characters
    return _most([{name: Unread(times[name], sums[name]) for name in times}], lambda unread: unread.records)


def sum_events(traces: Iterable[Mapping[str, TraceEvents]]) -> dict[str, TraceEvents]:
    """Add up the events of traces, by kind; those of rare kinds together, as `others`."""
    return _most(traces, lambda events: events.read + events.not_read)


def _most(counts: Iterable[Mapping[str, _C]], size: Callable[[_C], int]) -> dict[str, _C]:
    """Add up counts by name, in the order of the names; those of the rarest names together, as `others`."""
    totals: dict[str, _C] = {}
    for each in counts:
        for name, count in each.items():
            totals[name] = totals[name] + count if name in totals else count
    names = sorted(totals, key=lambda name: (-size(totals[name]), name))
    if others := [totals[name] for name in names[_MOST_UNREAD:]]:
        totals = {name: totals[name] for name in names[:_MOST_UNREAD]}
        totals["others"] = type(others[0]).total(others)
    return totals
