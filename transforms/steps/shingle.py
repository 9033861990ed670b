"""Shingle: each record gets the set of its runs of words, by which near duplicates are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import msgspec

from transforms.contamination.texts import compared
from transforms.contamination.words import normalized
from transforms.model.batches import Examples
from transforms.model.examples import Content, Example
from transforms.similarity.shingles import shingles_of
from transforms.steps.base import Step

# About as many bytes are looked at at once: their arrays stay in the cache of a core.
_BYTES_AT_ONCE = 1 << 18


class Shingler:
    """Gives the examples of each record of a batch its shingles. Those without words have none."""

    def __call__(self, batch: Examples) -> Examples:
        outcomes, found = batch.outcomes, list[Example]()
        without = list[Example]()
        for records in _in_groups(batch.examples):
            values, offsets = shingles_of([texts for _, texts in records])
            content = values.astype("<u4", copy=False).tobytes()
            bounds = (offsets * values.itemsize).tolist()
            for (examples, _), start, stop in zip(records, bounds, bounds[1:], strict=False):
                if start == stop:
                    without.append(examples[0])
                own = content[start:stop]
                found += [msgspec.structs.replace(example, shingles=own) for example in examples]
        if without:
            first = without[0].position, "it has no words"
            outcomes = outcomes.note("not_compared_with_others", len(without), first)
        return replace(batch, outcomes=outcomes, examples=found)


_Texts = tuple[bytes, bytes]


def _in_groups(examples: Sequence[Example]) -> Iterator[list[tuple[list[Example], _Texts]]]:
    """Yield the examples of each record, with what was asked and what was answered in them, some records at once."""
    group, size = list[tuple[list[Example], _Texts]](), 0
    for _, of_record in groupby(examples, key=lambda example: example.position):
        own = list(of_record)
        asked, answered = _texts([example.content for example in own])
        group.append((own, (asked, answered)))
        size += len(asked) + len(answered)
        if size >= _BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _texts(contents: Sequence[Content]) -> _Texts:
    """What was asked, by users and tools, and what assistants answered, normalized."""
    asked, answered = list[str](), list[str]()
    for content in contents:
        for role, text in zip(*compared(content), strict=True):
            (answered if role == "assistant" else asked).append(text)
    return normalized("\n".join(asked)), normalized("\n".join(answered))


class Shingle(Step):
    """Give each example the shingles of its record.

    PCollection[Parts[Examples]] -> PCollection[Parts[Examples]].
    """

    input, output = Examples, Examples

    def __init__(self) -> None:
        super().__init__(Shingler)
