"""Statistics of what goes through the steps: histograms and counts. The sum of two is that of all their records.

They are integers, and each chunk of a task is counted alone, so that the sum is the same on any runner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
import numpy as np

from transforms.model.counts import Counts

# The lower bounds of buckets: each number below 16, and then 8 buckets for each power of two.
_LENGTHS = np.concatenate([np.arange(16), *((8 + np.arange(8)) << power for power in range(1, 40))])
_PERCENT = np.arange(0, 101, 5)
# The names whose unread text, or events, are counted in a chunk; keys may differ in each record.
_MOST_UNREAD = 100

_C = TypeVar("_C", bound=Counts)


class Histogram(Counts, frozen=True):
    """How often numbers occur.

    Attributes:
        buckets: the lower bound of each bucket that is not empty, ascending, and how many numbers are in it. A bucket
            ends before the next lower bound of `bounds_of`.
        count, sum, min, max: of the numbers, exactly.
    """

    buckets: list[tuple[int, int]]
    count: int
    sum: int
    min: int
    max: int

    @classmethod
    def sum_of(cls, some: Sequence[Histogram]) -> Histogram:
        """Add up histograms of the same buckets."""
        buckets = Counter[int]()
        for each in some:
            for bound, count in each.buckets:
                buckets[bound] += count
        low, high = min(each.min for each in some), max(each.max for each in some)
        return cls(sorted(buckets.items()), sum(each.count for each in some), sum(each.sum for each in some), low, high)


class Beyond(Counts, frozen=True):
    """What a max_length would cut off with `keep_start`: the examples that are longer, and their tokens beyond it.

    trained_tokens_of_turns: the trained tokens that it would cut off with `turns`. With `windows` it is none.
    """

    examples: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    trained_tokens_of_turns: int = 0


class Tools(Counts, frozen=True):
    """Conversations that have tool definitions, these definitions, the calls of messages, and messages that answer."""

    conversations: int = 0
    definitions: int = 0
    calls: int = 0
    answers: int = 0


class Unread(Counts, frozen=True):
    """Text that was not read: the records that have it, and its characters."""

    records: int = 0
    characters: int = 0


class TraceEvents(Counts, frozen=True):
    """Events of traces: those that were read as part of a conversation, and all others."""

    read: int = 0
    not_read: int = 0


class Statistics(Counts, frozen=True):
    """Histograms and counts of the records of a batch, a shard or a dataset.

    Attributes:
        histograms: `turns`, the messages of each conversation; `example_tokens`, `example_trained_tokens` and
            `trained_percent` of each example that has a trained token, before it is truncated; `row_tokens` and
            `examples_per_row` of each row. One without numbers is left out.
        limits: for some values of max_length, as strings, what they would cut off; empty if no example was counted.
        roles: the messages of each role.
        tools: of conversations.
        schemas: the examples that were read by each schema.
        unread: text that was not read, by the name of its column, or of its key, such as `messages[].name`.
        trace_events: the events of the traces of agents, by format and kind, such as `codex/turn_context`.
        span_ends: the last token of each span of trained tokens in rows, before white space: added tokens by their
            texts, and all others as `others`.
        parts: the trained tokens of rows by the part of a turn that they are, `none` for those of texts without turns;
            empty if that is not asked for.
        duplicates: the records that were dropped as duplicates, by the numbers of their source and of that of the
            record that was kept, such as `1 of 0`.
        contaminated: the records that share words with evaluation sets, kept or dropped, by the file of the set.
    """

    histograms: Mapping[str, Histogram] = {}
    limits: Mapping[str, Beyond] = {}
    roles: Mapping[str, int] = {}
    tools: Tools = Tools()
    schemas: Mapping[str, int] = {}
    unread: Mapping[str, Unread] = {}
    trace_events: Mapping[str, TraceEvents] = {}
    span_ends: Mapping[str, int] = {}
    parts: Mapping[str, int] = {}
    duplicates: Mapping[str, int] = {}
    contaminated: Mapping[str, int] = {}


def bounds_of(histogram: str) -> np.ndarray:
    """Return the lower bounds of all buckets of a histogram, by its name: int64, ascending."""
    return _PERCENT if histogram == "trained_percent" else _LENGTHS


def histogram_of(name: str, numbers: np.ndarray) -> Histogram:
    """Count numbers.

    Args:
        name: of the histogram, which decides its buckets.
        numbers: int64, shape (any but 0,), none below 0.
    """
    bounds = bounds_of(name)
    counts = np.bincount(np.searchsorted(bounds, numbers, side="right") - 1)
    some = np.flatnonzero(counts)
    buckets = [*zip(bounds[some].tolist(), counts[some].tolist(), strict=True)]
    return Histogram(buckets, len(numbers), int(numbers.sum()), int(numbers.min()), int(numbers.max()))


def bins_of(name: str, histogram: Mapping[str, Any], most: int) -> list[tuple[int, int, int]]:
    """Return a histogram in few bins: the first and the last number of each, and how many numbers are in it.

    Args:
        name: of the histogram.
        histogram: as the manifest has it.
        most: how many bins at most; adjacent buckets are one bin, equally many in each but the last.
    """
    counts = dict(histogram["buckets"])
    bounds = [bound for bound in bounds_of(name).tolist() if min(counts) <= bound <= histogram["max"]]
    at_once = -(-len(bounds) // most)
    ends = [*bounds[at_once::at_once], histogram["max"] + 1]
    return [
        (max(first, histogram["min"]), end - 1, sum(counts.get(bound, 0) for bound in bounds if first <= bound < end))
        for first, end in zip(bounds[::at_once], ends, strict=True)
    ]


def at_most(name: str, histogram: Mapping[str, Any], percent: int) -> int:
    """Return a number that a percentage of all do not exceed: the last one of a bucket.

    Args:
        name: of the histogram.
        histogram: as the manifest has it.
        percent: from 1 to 100.
    """
    bounds = bounds_of(name)
    below = accumulate(count for _, count in histogram["buckets"])
    reached = (100 * count >= percent * histogram["count"] for count in below)
    bound = next(bound for (bound, _), is_reached in zip(histogram["buckets"], reached, strict=True) if is_reached)
    following = bounds[np.searchsorted(bounds, bound, "right") :][:1].tolist()
    return min([histogram["max"], *(end - 1 for end in following)])


decode_statistics = msgspec.json.Decoder(Statistics).decode


def sum_of_unread(records: Iterable[Mapping[str, int]]) -> dict[str, Unread]:
    """Add up the characters that were not read of records, by name; those of rare names together, as `others`."""
    found = ({name: Unread(1, characters) for name, characters in record.items()} for record in records)
    return _most(found, lambda unread: unread.records)


def sum_of_events(traces: Iterable[Mapping[str, TraceEvents]]) -> dict[str, TraceEvents]:
    """Add up the events of traces, by kind; those of rare kinds together, as `others`."""
    return _most(traces, lambda events: events.read + events.not_read)


def _most(counts: Iterable[Mapping[str, _C]], size: Callable[[_C], int]) -> dict[str, _C]:
    """Add up counts by name, in the order of the names; those of the rarest names together, as `others`."""
    found: dict[str, _C] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found[name] + count if name in found else count
    names = sorted(found, key=lambda name: (-size(found[name]), name))
    if others := [found[name] for name in names[_MOST_UNREAD:]]:
        found = {name: found[name] for name in names[:_MOST_UNREAD]}
        found["others"] = type(others[0]).total(others)
    return dict(sorted(found.items()))
