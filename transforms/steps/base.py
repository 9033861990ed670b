"""How a step becomes a PTransform: its function is made once for each worker, then maps batch to batch."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from transforms.steps.failures import FailureWriter
from transforms.steps.metrics import timed


class Step(beam.PTransform):
    """A PTransform that maps each batch.

    input, output: the types of the batches that it takes and returns. Beam compares them while the pipeline is built,
    so that steps in a wrong order fail there.

    Args:
        make: makes the function when a worker starts; it may load a tokenizer.
        sources: the arguments that are others for the batches of each source, by the number of the source.
        options: the arguments of make, by name. They are shown as display data.
    """

    input: ClassVar[type]
    output: ClassVar[type]

    def __init__(
        self, make: Callable[..., Callable[[Any], Any]], sources: Sequence[Mapping[str, Any]] = (), **options: Any
    ):
        super().__init__()
        self.options = options | ({"sources": sources} if sources else {})
        self._make: Callable[[], Callable[[Any], Any]] = functools.partial(make, **options)
        if sources:
            self._make = functools.partial(BySource, make, [options | dict(source) for source in sources])
        self.with_input_types(self.input)
        self.with_output_types(self.output)

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | beam.ParDo(_MapBatches(self._make)).with_output_types(self.output)

    def display_data(self) -> dict[str, Any]:
        return {name: DisplayDataItem(str(value)) for name, value in self.options.items() if value is not None}


class BySource:
    """Maps each batch by the function of its split's source. Sources with the same options share a function.

    Args:
        make: makes a function.
        options: the arguments of make for each source, by name.
    """

    def __init__(self, make: Callable[..., Callable[[Any], Any]], options: Sequence[Mapping[str, Any]]):
        self._make = make
        self._options = options
        self._first_alike = [options.index(of_source) for of_source in options]
        self._functions: dict[int, Callable[[Any], Any]] = {}

    def __call__(self, batch: Any) -> Any:
        number = self._first_alike[batch.split.source]
        if number not in self._functions:  # a worker may never see some of many sources
            self._functions[number] = self._make(**self._options[number])
        return self._functions[number](batch)


class _MapBatches(beam.DoFn):
    def __init__(self, make: Callable[[], Callable[[Any], Any]]):
        self._make = make
        self._failures = FailureWriter()

    def setup(self) -> None:
        with self._failures:
            self._map = self._make()

    def process(self, batch: Any) -> Iterator[Any]:
        with garbage_uncollected(), self._failures:
            yield from timed(map(self._map, [batch]))


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Inside, Python does not look for garbage in cycles.

    The many small objects of a split are not garbage, and to look through them again and again takes a third of the
    time. What a step yields is processed by the next steps before it goes on, so a split is completed, from reading to
    writing, in here.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
