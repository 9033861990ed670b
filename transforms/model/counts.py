"""What is counted. A new count is a field of one of these types: it is added up, written and read with the others.

They are integers, and each chunk of a task is counted alone, so that their sums are the same on any runner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec.structs import replace
from typing_extensions import Self

# So many are added up at once: much faster than one by one, and there may be a million.
_AT_ONCE = 64


class Counts(msgspec.Struct, frozen=True):
    """Counts that add up, field by field.

    Numbers and counts are added, mappings name by name; tuples follow each other. Of anything else the first one is
    kept, and in a mapping of tuples, too.
    """

    def __add__(self, other: Self) -> Self:
        return self.sum_up((self, other))

    @classmethod
    def total(cls, each: Iterable[Any]) -> Self:
        """Add up any number of counts, of this type or with all of its fields. The total of none has the defaults."""
        left, total = iter(each), cls()
        while batch := [*islice(left, _AT_ONCE)]:
            total = cls.sum_up((total, *batch))
        return total

    @classmethod
    def sum_up(cls, counts: Sequence[Any]) -> Self:
        """Add up some counts, at least one."""
        return cls(**{name: _sum([getattr(each, name) for each in counts]) for name in cls.__struct_fields__})

    def plus(self, **counts: Any) -> Self:
        """Add to some of the fields, by name."""
        return replace(self, **{name: _sum([getattr(self, name), more]) for name, more in counts.items()})


def _sum(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, int):
        return sum(values)
    if isinstance(first, Counts):
        return first.sum_up(values)
    if isinstance(first, tuple):
        return tuple(chain.from_iterable(values))
    if isinstance(first, Mapping):
        by_name: dict[Any, list[Any]] = {}
        for value in values:
            for name, named in value.items():
                by_name.setdefault(name, []).append(named)
        return {name: _sum_named(by_name[name]) for name in sorted(by_name)}
    return first


def _sum_named(values: Sequence[Any]) -> Any:
    return _sum(values) if isinstance(values[0], (int, Counts)) else values[0]


class RecordCounts(Counts, frozen=True):
    """How many records were read, and how many had which outcome: the same number.

    Attributes:
        kept: records of which all tokens are in rows.
        truncated: records of which some tokens are in no row, because of max_length.
        dropped, rejected: by reason.
    """

    read: int = 0
    kept: int = 0
    truncated: int = 0
    dropped: Mapping[str, int] = {}
    rejected: Mapping[str, int] = {}


class Totals(Counts, frozen=True):
    """The outcomes of records, and what their rows hold."""

    records: RecordCounts = RecordCounts()
    rows: int = 0
    tokens: int = 0
    trained_tokens: int = 0


class Histogram(Counts, frozen=True):
    """How often numbers occur.

    Attributes:
        buckets: the lower bound of each bucket that is not empty, ascending, and how many numbers are in it. A bucket
            ends before the next lower bound of `bucket_bounds`.
        count, sum, min, max: of the numbers, exactly.
    """

    buckets: list[tuple[int, int]]
    count: int
    sum: int
    min: int
    max: int

    @classmethod
    def sum_up(cls, counts: Sequence[Histogram]) -> Histogram:
        """Add up histograms of the same buckets."""
        buckets = Counter[int]()
        for each in counts:
            for bound, count in each.buckets:
                buckets[bound] += count
        low, high = min(each.min for each in counts), max(each.max for each in counts)
        return cls(
            sorted(buckets.items()), sum(each.count for each in counts), sum(each.sum for each in counts), low, high
        )


class CutOff(Counts, frozen=True):
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
        limits: for some values of max_length, what they would cut off; empty if no example was counted.
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
    limits: Mapping[int, CutOff] = {}
    roles: Mapping[str, int] = {}
    tools: Tools = Tools()
    schemas: Mapping[str, int] = {}
    unread: Mapping[str, Unread] = {}
    trace_events: Mapping[str, TraceEvents] = {}
    span_ends: Mapping[str, int] = {}
    parts: Mapping[str, int] = {}
    duplicates: Mapping[str, int] = {}
    contaminated: Mapping[str, int] = {}


class StepCounts(Counts, frozen=True):
    """What steps count of records, beyond their outcomes.

    Attributes:
        trained_tokens_lost: tokens that would have been trained on and are in no row, because of max_length.
        notes: counts of what is worth reporting but is not an outcome, such as prompts whose tokens do not begin the
            whole text.
        rendered_by_reference: records that the reference rendered, by reason.
        tokenized_by_reference: records of which the reference encoded at least one text, by reason.
        special_tokens_in_content: special tokens in contents, by the role and the token, such as `user <|im_end|>`.
        statistics: of contents and tokens.
    """

    trained_tokens_lost: int = 0
    notes: Mapping[str, int] = {}
    rendered_by_reference: Mapping[str, int] = {}
    tokenized_by_reference: Mapping[str, int] = {}
    special_tokens_in_content: Mapping[str, int] = {}
    statistics: Statistics = Statistics()


class FirstExample(msgspec.Struct, frozen=True):
    """The first record that was rejected or dropped for a reason, or counted under a name.

    Attributes:
        file: the url of its file.
        position: its byte or row there, in words.
        detail: what was found.
    """

    file: str
    position: str
    detail: str


class Sums(StepCounts, frozen=True):
    """All that is counted: of a shard, of an increment, of a version. A manifest has it, too.

    Attributes:
        sources: the outcomes of the records of each source, and what their rows hold, by its number.
        first_examples: the first record of those that were counted, by the name of the count.
        first_rejects, first_drops: the first record that was rejected or dropped, by reason.
    """

    sources: Mapping[int, Totals] = {}
    first_examples: Mapping[str, FirstExample] = {}
    first_rejects: Mapping[str, FirstExample] = {}
    first_drops: Mapping[str, FirstExample] = {}

    def totals(self) -> Totals:
        """Add up what the sources have."""
        return Totals.total(self.sources.values())

    def as_json(self, sources: Sequence[str]) -> dict[str, Any]:
        """Return the sums as a manifest has them. sources: the names of the dataset's sources."""
        totals = [self.sources.get(number, Totals()) for number in range(len(sources))]
        document = _counts_to_json(self.totals()) | _counts_to_json(self)
        document["sources"] = [{"name": name} | _counts_to_json(own) for name, own in zip(sources, totals, strict=True)]
        first = (*Totals.__struct_fields__, "trained_tokens_lost", "notes", "sources")
        return {name: document[name] for name in (*first, *document)}


def _counts_to_json(counts: Counts) -> dict[str, Any]:
    return msgspec.to_builtins(counts, str_keys=True)
