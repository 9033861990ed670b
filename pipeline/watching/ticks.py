"""Ticks: a source that emits an element now, and one more at each interval, for ever.

It is a splittable DoFn whose restriction begins at the number of the next tick, and which defers what is left of it.
(MatchContinuously keeps something for each file for ever; a timer in processing time that sets itself again does not
fire on Prism, and once on Flink.)

Flink resumes what is deferred at once, some hundred times a second, and keeps 40 KB of each resumption for ever
(apache/beam#27648). There, a source of Flink's own gives the pulse, and a state the number.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, TupleCoder, VarIntCoder
from apache_beam.io.flink.flink_streaming_impulse_source import FlinkStreamingImpulseSource
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
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
        defers: whether the runner waits with what a splittable DoFn defers; Flink does not, and has a source of ticks.
    """

    def __init__(self, seconds: float, defers: bool):
        super().__init__()
        self._seconds = seconds
        self._defers = defers

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        if not self._defers:
            return (
                pipeline
                | "pulse" >> FlinkStreamingImpulseSource().set_interval_ms(int(self._seconds * 1000))
                | "one key" >> beam.Map(_with_the_key).with_output_types(tuple[str, str])
                | "number" >> beam.ParDo(_Number(self._seconds)).with_output_types(tuple[str, int])
            )
        return (
            pipeline
            | beam.Impulse()
            | "run" >> beam.Map(_new_run).with_output_types(str)
            | "tick" >> beam.ParDo(_EmitTick(self._seconds)).with_output_types(tuple[str, int])
        )


def _with_the_key(_pulse: bytes) -> tuple[str, str]:
    return "", ""


_NEXT = beam.DoFn.StateParam(ReadModifyWriteStateSpec("next", TupleCoder((StrUtf8Coder(), VarIntCoder()))))


class _Number(beam.DoFn):
    """Numbers pulses. Each slot of the cluster has a source of them, and a look that takes long lets them wait."""

    def __init__(self, seconds: float):
        self._at_least = 0.9 * seconds

    def setup(self) -> None:
        self._last = float("-inf")

    def process(self, _pulse: tuple[str, str], state: Any = _NEXT) -> Iterator[Tick]:
        now = time.monotonic()
        if now - self._last < self._at_least:
            return
        self._last = now
        run, number = state.read() or (uuid.uuid4().hex, 0)
        state.write((run, number + 1))
        yield run, number


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
