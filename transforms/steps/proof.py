"""Proof: the fast engine is compared with the reference on a sample of each batch, while it runs."""

from __future__ import annotations

import logging
import random

from transforms.errors import InputError
from transforms.model.batches import Batch
from transforms.model.outcomes import Outcomes

# The sample of a batch: its first texts, and a fraction of the others.
_FIRST, _ONE_OF = 4, 512


def sample(batch: Batch, count: int) -> list[int]:
    """Choose the texts of a batch that the reference processes too; the same ones in each run.

    Args:
        batch: its split and part are the seed.
        count: how many texts it has.

    Returns:
        The numbers of the chosen texts, in ascending order.
    """
    chosen = random.Random(f"{batch.split.number}-{batch.part}").sample(range(count), count // _ONE_OF)
    return sorted({*range(min(_FIRST, count)), *chosen})


def fall_back(batch: Batch, engine: str, step: str, position: int, difference: str) -> Outcomes:
    """Log and count that a batch falls back to the reference, since the engines differ.

    Args:
        batch: the batch, as it was before the step.
        engine: one of ENGINES.
        step: rendering or tokenizing.
        position: of the first record of the sample that differs.
        difference: how it differs.

    Returns:
        The outcomes of the batch, with the note.

    Raises:
        InputError: with the engine fast, which does not fall back.
    """
    record = f"{batch.split.url}, {position:,}"
    if engine == "fast":
        raise InputError(
            f"{record}: {step} by the fast engine differs from the reference: {difference}. Use the engine auto."
        )
    logging.getLogger(__name__).warning("%s: %s falls back to the reference: %s", record, step, difference)
    return batch.outcomes.note(f"{step}_fell_back_to_reference", 1, (position, difference))
