"""Keep: the tokenized examples of each part are stored, whole; and read again, in place of the steps that made them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np

from transforms.base.errors import InputError
from transforms.chat.config import RenderConfig
from transforms.model.batches import Split, Tokens
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

    def __call__(self, batch: Tokens) -> Tokens:
        url = join(examples_of(self._output, batch.split.increment), name_of_examples(batch.split, batch.part))
        write_atomically(url, encode_examples(batch))
        return batch


class KeepExamples(Step):
    """Store the examples of each part below the folder of a dataset.

    PCollection[Parts[Tokens]] -> PCollection[Parts[Tokens]].

    Args:
        output: the folder of the dataset, at any url that fsspec opens.
    """

    input, output = Tokens, Tokens

    def __init__(self, output: str):
        super().__init__(ExampleWriter, output=output)


def read_examples(
    split: Split, folder: str, validation_fraction: float, configs: Sequence[RenderConfig]
) -> Iterator[Tokens]:
    """Read the examples of a split that a build kept.

    Args:
        split: with the number that it had there.
        folder: of the examples of the increment that was built, see `examples_of`.
        validation_fraction: how many of them are for validation.
        configs: of each source, which say what parts of turns are trained on.

    Yields:
        Its parts, in order.

    Raises:
        InputError: if one is missing or damaged, or has a text without the parts of turns that are chosen.
    """
    config = configs[split.source]
    number, last = 0, False
    while not last:
        url = join(folder, name_of_examples(split, number))
        again = f"{url}r"  # by the reference, since the engines differed
        url = again if exists(again) else url
        try:
            batch = decode_examples(read_bytes(url), split, url)
        except FileNotFoundError:
            raise InputError(f"{url}: the kept examples are missing. Build the dataset again.") from None
        if config.train_parts and _has_other_texts(batch):
            raise InputError(
                f"{url}: it has texts without turns, which a build that chooses parts of turns rejects. "
                "Build the records again."
            )
        source = batch.source.with_validation(validation_fraction)
        yield dataclasses.replace(batch, source=source, trained_parts=config.trained_parts)
        number, last = number + 1, batch.last


def _has_other_texts(batch: Tokens) -> bool:
    """Whether a token is trained on that is of no turn."""
    of_no_part = True if batch.parts is None else batch.parts[:, 0] == 0
    return bool(np.any(batch.trained & of_no_part))


class ReadExamples(beam.PTransform):
    """Read the examples of splits that a build kept.

    PCollection[Split] -> PCollection[Parts[Tokens]].

    Args:
        folder, validation_fraction, configs: as of read_examples.
    """

    def __init__(self, folder: str, validation_fraction: float, configs: Sequence[RenderConfig]):
        super().__init__()
        self._from = folder, validation_fraction, configs

    def expand(self, splits: beam.PCollection) -> beam.PCollection:
        return splits | beam.ParDo(_ReadExamples(*self._from)).with_output_types(Parts[Tokens])


class _ReadExamples(beam.DoFn):
    def __init__(self, folder: str, validation_fraction: float, configs: Sequence[RenderConfig]):
        self._from = folder, validation_fraction, configs
        self._failures = FailureWriter()

    def process(self, split: Split) -> Iterator[Parts[Tokens]]:
        call = StepCall(self._failures)

        def read() -> Iterator[Tokens]:
            parts = read_examples(split, *self._from)
            while (part := call(next, parts, None)) is not None:
                yield part

        yield Parts(split, read)
