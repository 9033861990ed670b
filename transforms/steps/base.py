"""How a step becomes a PTransform: its function is made once for each worker, then maps batch to batch."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import apache_beam as beam

from transforms.steps.metrics import timed


class Step(beam.PTransform):
    """A PTransform that maps each batch. Takes, by name, the arguments of what its `make` makes.

    make: makes the function when a worker starts; it may load a tokenizer. output: the type of the batches it returns.
    """

    make: ClassVar[Callable[..., Callable[[Any], Any]]]
    output: ClassVar[type]

    def __init__(self, **arguments: Any):
        super().__init__()
        self._make = functools.partial(type(self).make, **arguments)

    def expand(self, batches):
        return batches | beam.ParDo(_MapBatches(self._make)).with_output_types(self.output)


class _MapBatches(beam.DoFn):
    def __init__(self, make: Callable[[], Callable[[Any], Any]]):
        self._make = make

    def setup(self) -> None:
        self._map = self._make()

    def process(self, batch: Any) -> Iterator[Any]:
        with garbage_uncollected():
            yield from timed(map(self._map, [batch]))


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Inside, Python does not look for garbage in cycles.

    The many small objects of a split are none, and to look through them again and again takes a third of the time. What
    a step yields is worked on by the next ones before it goes on, so a split is done with from reading to writing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
