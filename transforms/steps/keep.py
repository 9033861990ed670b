"""Keep: the labelled examples of each part are stored, whole; and read again, in place of the steps that made them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from transforms.base.errors import InputError
from transforms.model.batches import Labels, Split
from transforms.model.kept_examples import decode_examples, encode_examples, examples_of, name_of_examples
from transforms.model.parts import Parts
from transforms.steps.base import Step, StepCall
from transforms.steps.failures import FailureWriter
from transforms.storage.files import exists, join, read_bytes
from transforms.storage.writing import write_atomically


class ExampleWriter:
    """Stores the examples of a batch, and returns the batch.

    Args:
        output: the folder of the dataset.
    """

    def __init__(self, output: str):
        self._output = output

    def __call__(self, batch: Labels) -> Labels:
        url = join(examples_of(self._output, batch.split.increment), name_of_examples(batch.split, batch.part))
        write_atomically(url, encode_examples(batch))
        return batch


class KeepExamples(Step):
    """Store the examples of each part below the folder of a dataset.

    PCollection[Parts[Labels]] -> PCollection[Parts[Labels]].

    Args:
        output: the folder of the dataset, at any url that fsspec opens.
    """

    input, output = Labels, Labels

    def __init__(self, output: str):
        super().__init__(ExampleWriter, output=output)


def read_examples(split: Split, folder: str, validation_fraction: float) -> Iterator[Labels]:
    """Read the examples of a split that a build kept.

    Args:
        split: with the number that it had there.
        folder: of the examples of the increment that was built, see `examples_of`.
        validation_fraction: how many of them are for validation.

    Yields:
        Its parts, in order.

    Raises:
        InputError: if one is missing or damaged.
    """
    number, last = 0, False
    while not last:
        url = join(folder, name_of_examples(split, number))
        again = f"{url}r"  # by the reference, since the engines differed
        url = again if exists(again) else url
        try:
            batch = decode_examples(read_bytes(url), split, url)
        except FileNotFoundError:
            raise InputError(f"{url}: the kept examples are missing. Build the dataset again.") from None
        yield dataclasses.replace(batch, source=batch.source.with_validation(validation_fraction))
        number, last = number + 1, batch.last


class ReadExamples(beam.PTransform):
    """Read the examples of splits that a build kept.

    PCollection[Split] -> PCollection[Parts[Labels]].

    Args:
        folder: of the examples of the increment that was built, see `examples_of`.
        validation_fraction: how many of them are for validation.
    """

    def __init__(self, folder: str, validation_fraction: float):
        super().__init__()
        self._from = folder, validation_fraction

    def expand(self, splits: beam.PCollection) -> beam.PCollection:
        return splits | beam.ParDo(_ReadExamples(*self._from)).with_output_types(Parts[Labels])


class _ReadExamples(beam.DoFn):
    def __init__(self, folder: str, validation_fraction: float):
        self._folder = folder
        self._validation_fraction = validation_fraction
        self._failures = FailureWriter()

    def process(self, split: Split) -> Iterator[Parts[Labels]]:
        call = StepCall(self._failures)

        def read() -> Iterator[Labels]:
            parts = read_examples(split, self._folder, self._validation_fraction)
            while (part := call(next, parts, None)) is not None:
                yield part

        yield Parts(split, read)
