"""The chunks of a task: what one Beam element is between the steps.

A chunk is a batch of some megabytes of input. The chunks of a task are made one after the other while the last step
asks for them, each from its input to its rows, so that memory is bounded by the size of a chunk. Only if a runner
breaks the fusion of the steps, all chunks of a task are made at once, and sent.
"""

from __future__ import annotations

import functools
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import apache_beam as beam

from transforms.base.once import unpickled
from transforms.model.batches import Batch, Examples, Labels, Records, Rows, Task, Texts, Tokens

# Enough that little is lost at the end of a chunk, where rows are not full; little enough that a worker needs no more
# than 250 MB for it.
CHUNK_BYTES = 4 << 20

_Chunk = TypeVar("_Chunk", bound=Batch)


class Chunks(Generic[_Chunk]):
    """The chunks of a task, in order. They can be iterated any number of times; each time makes them again.

    They are pickled as their task with the functions.

    Args:
        task: the task.
        read: takes the task, and returns an iterator that makes the chunks.
        functions: each is applied to each chunk, one after the other.
    """

    def __init__(
        self,
        task: Task,
        read: Callable[[Task], Iterator[Any]],
        functions: tuple[Callable[[Any], Any], ...] = (),
    ):
        self.task = task
        self._read = read
        self._functions = functions

    def __iter__(self) -> Iterator[_Chunk]:
        chunks = self._read(self.task)
        for function in self._functions:
            chunks = map(function, chunks)
        return _uncollected(chunks)

    def map(self, function: Callable[[_Chunk], Any]) -> Chunks[Any]:
        """Return the chunks that a function makes of these, when they are iterated."""
        return Chunks(self.task, self._read, (*self._functions, function))

    def __reduce__(self) -> tuple[Any, ...]:
        return _call_pickled, (self.task, pickle.dumps((self._read, self._functions)))


def _call_pickled(task: Task, functions: bytes) -> Chunks[Any]:
    return Chunks(task, *unpickled(functions))


def _made_already(chunks: list[Any], task: Task) -> Iterator[Any]:
    return iter(chunks)


def _uncollected(chunks: Iterator[_Chunk]) -> Iterator[_Chunk]:
    """Yield chunks without a reference to the one that was yielded, so that it does not stay in memory.

    While there is a chunk, Python does not look for garbage in cycles: the many small objects of a chunk are not
    garbage, and to look through them again and again takes a third of the time. It looks when a chunk is gone.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        while True:
            yield next(chunks)
            if was_enabled:
                gc.collect(0)
    except StopIteration:
        return
    finally:
        if was_enabled:
            gc.enable()


class ChunksCoder(beam.coders.Coder):
    """Pickles chunks, and estimates their size without making them.

    Beam samples the sizes of elements between steps, by default by encoding them.
    """

    def encode(self, value: Chunks[Any]) -> bytes:
        return pickle.dumps((value.task, [*value]), pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Chunks[Any]:
        task, chunks = pickle.loads(encoded)
        return Chunks(task, functools.partial(_made_already, chunks))

    def estimate_size(self, value: Chunks[Any]) -> int:
        return min(value.task.bytes, 2**31 - 1)  # for Beam it is an int of C

    def is_deterministic(self) -> bool:
        return False


for _kind in (Records, Examples, Texts, Tokens, Labels, Rows):
    beam.coders.registry.register_coder(Chunks[_kind], ChunksCoder)  # type: ignore[valid-type]
