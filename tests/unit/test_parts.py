"""The parts of a task are made one after the other, and look the same to the runner wherever they are made."""

from __future__ import annotations

import dataclasses
import pickle
import weakref

import apache_beam as beam

from support.chats import TASK, examples_of
from transforms import Examples, Parts

made: list[int] = []


def make():
    for number in range(3):
        made.append(number)
        yield dataclasses.replace(examples_of(), part=number, last=number == 2)


def copied(examples: Examples) -> Examples:
    return dataclasses.replace(examples)


def test_a_part_is_made_when_it_is_asked_for_and_is_not_kept():
    made.clear()
    seen: list[weakref.ref] = []

    def watched(examples: Examples) -> Examples:
        seen.append(weakref.ref(examples))
        return examples

    parts = Parts(TASK, make).map(watched).map(copied).map(lambda part: part.part)
    assert made == []
    iterator = iter(parts)
    for number in range(3):
        assert next(iterator) == number
        assert made == [*range(number + 1)]
        assert seen[number]() is None
    assert list(parts) == [0, 1, 2]


def test_parts_are_pickled_with_all_of_them_and_their_size_is_estimated_without_making_them():
    parts = Parts(TASK, make).map(copied)
    coder = beam.coders.registry.get_coder(Parts[Examples])
    made.clear()
    assert coder.estimate_size(parts) == TASK.bytes
    assert made == []
    for decoded in (coder.decode(coder.encode(parts)), pickle.loads(pickle.dumps(parts))):
        assert decoded.task == TASK
        assert list(decoded) == list(decoded) == list(parts)
