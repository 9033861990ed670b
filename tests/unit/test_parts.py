"""The parts of a split are made one after the other, and look the same to the runner wherever they are made."""

from __future__ import annotations

import gc
import pickle
import weakref

import apache_beam as beam
import pytest

from support.chats import SPLIT
from transforms import Examples, Parts
from transforms.model.batches import Records
from transforms.model.outcomes import Outcomes

made: list[int] = []


def parts_of(count: int) -> Parts[Records]:
    def make():
        for number in range(count):
            made.append(number)
            yield Records(SPLIT, number, number == count - 1, Outcomes(), [])

    return Parts(SPLIT, make)


def examples_of(records: Records) -> Examples:
    return records.succeeded_by(Examples, examples=[])


def test_a_part_is_made_when_it_is_asked_for_and_is_not_kept():
    made.clear()
    seen: list[weakref.ref] = []

    def watched(records: Records) -> Records:
        seen.append(weakref.ref(records))
        return records

    parts = parts_of(3).map(watched).map(examples_of).map(lambda part: part.part)
    assert made == []
    iterator = iter(parts)
    for number in range(3):
        assert next(iterator) == number
        assert made == [*range(number + 1)]
        assert seen[number]() is None
    assert list(parts) == [0, 1, 2]


class Cycle:
    def __init__(self):
        self.itself = self


def test_garbage_is_collected_when_a_part_is_gone_and_not_while_there_is_one():
    garbage: list[weakref.ref] = []
    alive: list[int] = []

    def littered(records: Records) -> Records:
        alive.append(sum(cycle() is not None for cycle in garbage))
        garbage.append(weakref.ref(Cycle()))
        return records

    for number, _ in enumerate(parts_of(3).map(littered).map(examples_of)):
        assert not gc.isenabled()
        assert garbage[number]() is not None
    assert gc.isenabled()
    assert alive == [0, 0, 0]


def test_garbage_is_collected_again_if_the_parts_are_abandoned():
    iterator = iter(parts_of(3))
    next(iterator)
    assert not gc.isenabled()
    del iterator
    assert gc.isenabled()


@pytest.mark.parametrize("kind", [Records, Examples])
def test_parts_are_pickled_with_all_of_them_and_their_size_is_estimated_without_making_them(kind):
    parts = parts_of(3) if kind is Records else parts_of(3).map(examples_of)
    coder = beam.coders.registry.get_coder(Parts[kind])
    made.clear()
    assert coder.estimate_size(parts) == SPLIT.bytes
    assert made == []
    for decoded in (coder.decode(coder.encode(parts)), pickle.loads(pickle.dumps(parts))):
        assert decoded.split == SPLIT
        assert list(decoded) == list(decoded) == list(parts)
        assert all(isinstance(part, kind) for part in decoded)
