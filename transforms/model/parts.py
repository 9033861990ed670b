"""The parts of a task: what one Beam element is between the steps.

A part is a batch of some megabytes of input. The parts of a task are made one after the other while the last step asks
for them, each from its input to its rows, so that memory is bounded by the size of a part. Only if a runner breaks the
fusion of the steps, all parts of a task are made at once, and sent.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import apache_beam as beam

from transforms.model.batches import Batch, Examples, Labels, Records, Rows, Task, Texts, Tokens

# Enough that little is lost at the end of a part, where rows are not full; little enough that a worker needs no more
# than 250 MB for it.
PART_BYTES = 4 << 20

_Part = TypeVar("_Part", bound=Batch)


class Parts(Generic[_Part]):
    """The parts of a task, in order. They can be iterated any number of times; each time makes them again.

    Args:
        task: the task.
        make: returns an iterator that makes the parts.
    """

    def __init__(self, task: Task, make: Callable[[], Iterator[_Part]]):
        self.task = task
        self._make = make

    def __iter__(self) -> Iterator[_Part]:
        return _uncollected(self._make())

    def map(self, function: Callable[[_Part], Any]) -> Parts[Any]:
        """Return the parts that a function makes of these, when they are iterated."""
        return Parts(self.task, lambda: map(function, self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.task, list(self))


def _made(task: Task, parts: Sequence[_Part]) -> Parts[_Part]:
    return Parts(task, lambda: iter(parts))


def _uncollected(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Yield parts without a reference to the one that was yielded, so that it does not stay in memory.

    While there is a part, Python does not look for garbage in cycles: the many small objects of a part are not garbage,
    and to look through them again and again takes a third of the time. It looks when a part is gone.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        while True:
            yield next(parts)
            if was_enabled:
                gc.collect(0)
    except StopIteration:
        return
    finally:
        if was_enabled:
            gc.enable()


class PartsCoder(beam.coders.Coder):
    """Pickles parts, and estimates their size without making them.

    Beam samples the sizes of elements between steps, by default by encoding them.
    """

    def encode(self, value: Parts[Any]) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Parts[Any]:
        return pickle.loads(encoded)

    def estimate_size(self, value: Parts[Any]) -> int:
        return value.task.bytes

    def is_deterministic(self) -> bool:
        return False


for _kind in (Records, Examples, Texts, Tokens, Labels, Rows):
    beam.coders.registry.register_coder(Parts[_kind], PartsCoder)  # type: ignore[valid-type]
