"""Engines: how the fast one proves itself against the reference while it runs."""

from __future__ import annotations

import logging
import random

from transforms.errors import InputError
from transforms.model.batches import Batch
from transforms.model.outcomes import Outcomes

# Of each batch the first texts, and one of each so many, go through the reference as well.
_FIRST, _ONE_OF = 4, 512


def sample(batch: Batch, count: int) -> list[int]:
    """Which of so many texts of a batch the reference looks at; the same ones in each run."""
    chosen = random.Random(f"{batch.split.number}-{batch.part}").sample(range(count), count // _ONE_OF)
    return sorted({*range(min(_FIRST, count)), *chosen})


def fall_back(batch: Batch, engine: str, step: str, position: int, how: str) -> Outcomes:
    """The outcomes of a batch that the reference does again, since the engines differ over the record at a position.

    Raises InputError with --engine fast, which is not to be done again.
    """
    where = f"{batch.split.url}, {position:,}"
    if engine == "fast":
        raise InputError(f"{where}: {step} by the fast engine differs from the reference: {how}. Use --engine auto.")
    logging.getLogger(__name__).warning("%s: %s is done again by the reference: %s", where, step, how)
    return batch.outcomes.note(f"{step}_fell_back_to_reference", 1, (position, how))
