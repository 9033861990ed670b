"""Ticks: a source that emits an element now, and one more each so many seconds, for ever.

It is a splittable DoFn whose restriction begins at the number of the next tick, and which defers what is left of it.
(MatchContinuously keeps something for each file for ever; a timer in processing time that sets itself again does not
fire on Prism, and once on Flink.)
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration

_NEVER = 1 << 62

# The id of a run of the pipeline, and the number of the tick in it. A runner that restarts without a checkpoint begins
# another run.
Tick = tuple[str, int]


class EmitTicks(beam.PTransform):
    """Emit ticks.

    Pipeline -> PCollection[Tick].

    Args:
        seconds: between two of them; longer if what follows the tick in the same stage takes time.
    """

    def __init__(self, seconds: float):
        super().__init__()
        self._seconds = seconds

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Impulse()
            | "run" >> beam.Map(_new_run).with_output_types(str)
            | "tick" >> beam.ParDo(_EmitTick(self._seconds)).with_output_types(tuple[str, int])
        )


def _new_run(_impulse: bytes) -> str:
    return uuid.uuid4().hex


class _Tracker(OffsetRestrictionTracker):
    """Gives all of the rest to one successor: two would be two clocks."""

    def try_split(self, fraction_of_remainder: float) -> Any:
        return super().try_split(0) if fraction_of_remainder == 0 else None

    def is_bounded(self) -> bool:
        return False


class _EveryTick(RestrictionProvider):
    def initial_restriction(self, run: str) -> OffsetRange:
        return OffsetRange(0, _NEVER)

    def create_tracker(self, restriction: OffsetRange) -> _Tracker:
        return _Tracker(restriction)

    def restriction_size(self, run: str, restriction: OffsetRange) -> int:
        return 1

    def truncate(self, run: str, restriction: OffsetRange) -> None:
        return None  # a pipeline that is drained has no further tick


_REST = beam.DoFn.RestrictionParam(_EveryTick())


class _EmitTick(beam.DoFn):
    def __init__(self, seconds: float):
        self._seconds = seconds

    @beam.DoFn.unbounded_per_element()
    def process(self, run: str, tracker: Any = _REST) -> Iterator[Tick]:
        number = tracker.current_restriction().start
        if tracker.try_claim(number):
            yield run, number
            tracker.defer_remainder(Duration(self._seconds))
