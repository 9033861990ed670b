"""Sums of rows: all that is counted of a chunk of a shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict

from transforms.files.formats import input_format
from transforms.model.batches import Rows
from transforms.model.counts import FirstExample, RecordCounts, StepCounts, Sums, Totals
from transforms.model.outcomes import Drop, Reject


def count_rows(chunk: Rows) -> Sums:
    """Count the rows of a chunk, and the records that got their outcome in it.

    Raises:
        ValueError: if a record does not have exactly one outcome.
    """
    task, outcomes = chunk.task, chunk.outcomes

    def first(position: int, detail: str) -> FirstExample:
        piece, position = task.origin(position)
        return FirstExample(piece.url, f"{input_format(piece.format).position_unit} {position:,}", detail)

    examples = {what: first(*record) for what, record in outcomes.first_examples.items()}
    if chunk.used.truncated.any():
        examples["truncated"] = first(*_first_truncated(chunk))
    sums = Sums(
        **asdict(StepCounts.total([outcomes])),
        sources=_by_source(chunk),
        first_examples=examples,
        first_rejects={one.reason: first(one.position, one.detail) for one in _first_for_each_reason(outcomes.rejects)},
        first_drops={
            one.reason: first(one.position, one.described()) for one in _first_for_each_reason(outcomes.drops)
        },
    )
    if without := outcomes.read - sums.totals().records.read:
        place = task.slices[0].url if task.slices else "no input"
        raise ValueError(
            f"{place}, task {task.number}, chunk {chunk.chunk}: of {outcomes.read} records read, {without} have no "
            "outcome. A step that drops records must use FilterExamples."
        )
    return sums


def _first_for_each_reason(records: Sequence[Drop | Reject]) -> Iterable[Any]:
    """The first record that was left out for each reason."""
    return {one.reason: one for one in sorted(records, key=lambda one: -one.position)}.values()


def _first_truncated(chunk: Rows) -> tuple[int, str]:
    """The position of the first record that is truncated, and what it lost."""
    used, first = chunk.used, int(chunk.used.truncated.argmax())
    lost, trained = used.tokens_lost[first], used.trained_tokens_lost[first]
    position = chunk.facts.positions[chunk.facts.first_rows()[first]]
    return int(position), f"{lost:,} tokens, {trained:,} of them to be trained on, are in no row"


def _by_source(chunk: Rows) -> dict[int, Totals]:
    """What each source has. A packed row counts for the source of its first example, each token for its own."""
    task, facts, used = chunk.task, chunk.facts, chunk.used

    def list_reasons(records: Sequence[Drop | Reject]) -> list[tuple[int, str]]:
        """The source and the reason of each."""
        numbers = task.find_sources(np.array([one.position for one in records], np.int64)).tolist()
        return [(number, one.reason) for number, one in zip(numbers, records, strict=True)]

    drops, rejects = list_reasons(chunk.outcomes.drops), list_reasons(chunk.outcomes.rejects)
    row_sources = task.find_sources(facts.positions)
    used_sources = np.where(used.is_used & ~used.copies, row_sources[facts.first_rows()], -1)
    totals = {}
    for number in sorted({*row_sources.tolist(), *(number for number, _ in drops + rejects)}):
        kept, truncated = (int(np.sum((used_sources == number) & (used.truncated == flag))) for flag in (False, True))
        dropped, rejected = (Counter(reason for of, reason in reasons if of == number) for reasons in (drops, rejects))
        read = kept + truncated + dropped.total() + rejected.total()
        totals[number] = Totals(RecordCounts(read, kept, truncated, dropped, rejected))
        for table in (chunk.train, chunk.validation):
            own = row_sources[table.example_index] == number
            totals[number] += Totals(
                rows=int(np.sum(own[table.segment_offsets[:-1]])),
                tokens=int(np.sum(table.segment_lengths[own])),
                trained_tokens=int(np.sum(table.segment_trained_tokens[own])),
            )
    return totals
