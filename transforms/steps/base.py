"""How a step becomes a PTransform: its function is made once for each worker, then maps chunk by chunk of each task."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from transforms.base.errors import ParameterError
from transforms.base.options import Configuration, check_choice, options_in
from transforms.model.chunks import Chunks
from transforms.steps.failures import FailureWriter
from transforms.steps.metrics import seconds_recorder

_Configuration = TypeVar("_Configuration", bound=Configuration)


class Step(beam.PTransform):
    """A PTransform that maps each chunk of each task.

    input, output: the types of the batches that it takes and returns, as the Chunks of a task. Beam
    compares them while the pipeline is built, so that steps in a wrong order fail there.

    Args:
        make: makes the function when a worker starts; it may load a tokenizer.
        sources: the arguments that are others for the batches of each source, by the number of the source.
        options: the arguments of make, by name. They, and the fields of configurations, are shown as display data.
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
        self.with_input_types(Chunks[self.input])  # type: ignore[name-defined]
        self.with_output_types(Chunks[self.output])  # type: ignore[name-defined]

    def function(self) -> Callable[[Any], Any]:
        """Make the function of the step for this process, to be called with a batch after the other."""
        return self._make()

    def expand(self, chunks: beam.PCollection) -> beam.PCollection:
        return chunks | beam.ParDo(_MapChunks(self._make)).with_output_types(Chunks[self.output])  # type: ignore[name-defined]

    def display_data(self) -> dict[str, Any]:
        configurations = (vars(value) for value in self.options.values() if isinstance(value, Configuration))
        shown = self.options | {name: value for fields in configurations for name, value in fields.items()}
        return {
            name: DisplayDataItem(str(value))
            for name, value in shown.items()
            if value is not None and not isinstance(value, Configuration)
        }


class BySource:
    """Maps each batch by the function of its task's source. Sources with the same options share a function.

    Args:
        make: makes a function.
        options: the arguments of make for each source, by name.
    """

    def __init__(self, make: Callable[..., Callable[[Any], Any]], options: Sequence[Mapping[str, Any]]):
        self._make = make
        self._options = options
        self._first_alike = [options.index(source_options) for source_options in options]
        self._functions: dict[int, Callable[[Any], Any]] = {}

    def __call__(self, batch: Any) -> Any:
        number = self._first_alike[batch.task.source]
        if number not in self._functions:  # a worker may never see some of many sources
            self._functions[number] = self._make(**self._options[number])
        return self._functions[number](batch)


def for_sources(
    configuration: _Configuration, sources: Sequence[Mapping[str, Any]], names: Collection[str] = ()
) -> list[_Configuration]:
    """Return the configuration of each source. Raises ParameterError.

    Args:
        configuration: of all sources.
        sources: for each source the fields that have another value.
        names: those that may; by default the options that are declared so.
    """
    if not isinstance(sources, (list, tuple)) or not all(isinstance(source, Mapping) for source in sources):
        raise ParameterError("sources", sources, "expected a list with a mapping for each source.")
    names = names or [field.name for field in options_in(configuration) if field.metadata["per_source"]]
    for name in (name for source in sources for name in source):
        check_choice("sources", name, names)
    return [dataclasses.replace(configuration, **source) for source in sources]


class _MapChunks(beam.DoFn):
    def __init__(self, make: Callable[[], Callable[[Any], Any]]):
        self._function = _StepFunction(make)
        self._failures = FailureWriter()

    def process(self, chunks: Chunks[Any]) -> Iterator[Chunks[Any]]:
        yield chunks.map(functools.partial(StepCall(self._failures), self._function))


class _StepFunction:
    """The function of a step, which each process makes when it has the first batch for it."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]]):
        self._make = make
        self._function: Callable[[Any], Any] | None = None

    def __call__(self, batch: Any) -> Any:
        if self._function is None:
            self._function = self._make()
        return self._function(batch)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_function": None}


class StepCall:
    """Calls functions for a step: records the time that each takes, and writes down its errors for the user.

    Make it in the `process` of the step. The calls may come later, while Beam is at the last step, which asks for the
    chunks; the time is recorded for the step that made the object.

    Args:
        failures: of the step.
    """

    def __init__(self, failures: FailureWriter):
        self._failures = failures
        self._record_seconds = seconds_recorder()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        with self._failures:
            result = function(*arguments)
        self._record_seconds(time.perf_counter() - start)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return StepCall, (self._failures,)
