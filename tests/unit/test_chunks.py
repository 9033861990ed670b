"""The chunks of a task are made one after the other, and look the same to the runner wherever they are made."""

from __future__ import annotations

import dataclasses
import pickle
import weakref

import apache_beam as beam

from support.chats import TASK, make_examples
from transforms import Chunks, Examples, Task

made: list[int] = []


def make(_: Task):
    for number in range(3):
        made.append(number)
        yield dataclasses.replace(make_examples(), chunk=number, last=number == 2)


def copied(examples: Examples) -> Examples:
    return dataclasses.replace(examples)


def test_a_part_is_made_when_it_is_asked_for_and_is_not_kept():
    made.clear()
    seen: list[weakref.ref] = []

    def watched(examples: Examples) -> Examples:
        seen.append(weakref.ref(examples))
        return examples

    chunks = Chunks(TASK, make).map(watched).map(copied).map(lambda chunk: chunk.chunk)
    assert made == []
    iterator = iter(chunks)
    for number in range(3):
        assert next(iterator) == number
        assert made == [*range(number + 1)]
        assert seen[number]() is None
    assert list(chunks) == [0, 1, 2]


def test_chunks_are_pickled_with_all_of_them_and_their_size_is_estimated_without_making_them():
    chunks = Chunks(TASK, make).map(copied)
    coder = beam.coders.registry.get_coder(Chunks[Examples])
    made.clear()
    assert coder.estimate_size(chunks) == TASK.bytes
    assert made == []
    for decoded in (coder.decode(coder.encode(chunks)), pickle.loads(pickle.dumps(chunks))):
        assert decoded.task == TASK
        assert list(decoded) == list(decoded) == list(chunks)
