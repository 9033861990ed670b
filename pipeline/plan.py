"""The plan: a file next to the output that lists the input files, from which the splits follow.

It has one line for each file, so that it stays small whatever the size of the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence

import apache_beam as beam
import msgspec

from transforms.inputs.listing import InputFile
from transforms.inputs.splits import largest_first, splits_of
from transforms.model.batches import Split
from transforms.steps.failures import FailureWriter
from transforms.storage.files import read_bytes


def encode_plan(files: Sequence[InputFile]) -> bytes:
    """Return the content of the plan file: JSON lines."""
    return b"".join(msgspec.json.encode(file) + b"\n" for file in files)


def decode_plan(content: bytes) -> list[InputFile]:
    """Return the input files that the content of a plan file lists."""
    return [msgspec.json.decode(line, type=InputFile) for line in content.splitlines()]


class ReadPlan(beam.PTransform):
    """Read the splits of a plan file on a worker, so that they are not in the job graph.

    Pipeline -> PCollection[Split].

    Args:
        plan: the url of the plan file.
        split_bytes: the size of a split, at most.
    """

    def __init__(self, plan: str, split_bytes: int):
        super().__init__()
        self._plan = plan
        self._split_bytes = split_bytes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Impulse()
            | beam.FlatMap(_planned_splits, self._plan, self._split_bytes, FailureWriter()).with_output_types(Split)
        )


def _planned_splits(_impulse: bytes, plan: str, split_bytes: int, failures: FailureWriter) -> list[Split]:
    with failures:
        return largest_first(splits_of(decode_plan(read_bytes(plan)), split_bytes))
