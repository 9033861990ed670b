"""Spot checks: the fast engine is compared with the reference while it runs, on some records of each part.

A difference anywhere means that nothing is published that the fast engine made: the build begins again with the
reference (`transforms.publish.commit`, and `pipeline.job.graph` for the builds of the command line).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from transforms.base.errors import InputError
from transforms.model.batches import Batch
from transforms.model.examples import Conversation, Text
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import DIFFERS

# The reference tokenizes a character in about a microsecond, the pipeline takes a thirtieth of that for all steps. So
# three steps with this share of the characters of a batch take 5% of its time. In the first part of a split they take
# up to 12 ms more, 8% of that for a split of 4 MiB.
_SHARE = 1 / 2048
_AT_FIRST = 4096
# How many times more records are drawn than have room if all cost the same.
_MORE = 4
# The microseconds in which the reference renders and compares a message, roughly.
_MESSAGE = 128


def sample(batch: Batch, count: int, cost: Callable[[int], int], characters: int) -> list[int]:
    """Choose the records of a batch that the reference processes too; the same ones in each run.

    Args:
        batch: its split and part are the seed.
        count: of its records.
        cost: returns what a record, by its number, costs the reference, in characters that it tokenizes in the same
            time. It is called for few records.
        characters: of all texts of the batch, which the share of the reference is counted by.

    Returns:
        Numbers of records, in ascending order. On average they cost a small share of the batch. In the first part of a
        split they cost somewhat more, so that there is at least one: the first record, or else the cheapest one.
    """
    if not count:
        return []
    draw = random.Random(f"{batch.split.number}-{batch.part}")
    drawn = draw.sample(range(count), min(count, int(count * _SHARE) + _MORE))
    room = characters * _SHARE
    if batch.part == 0:
        drawn = [0, *(number for number in drawn if number)]
        room += _AT_FIRST
    chosen = []
    for number in drawn:
        if (own := cost(number)) > room:
            if draw.random() * own < room:  # so that on average the room is used up, and no more
                chosen.append(number)
            break
        chosen.append(number)
        room -= own
    if not chosen and batch.part == 0:
        chosen = [min(range(count), key=cost)]
    return sorted(chosen)


def sample_conversations(batch: Batch, texts: Sequence[Text]) -> list[int]:
    """Choose the texts of a batch that the reference compares too, see sample; only conversations cost something."""

    def cost(number: int) -> int:
        content = texts[number].example.content
        return _MESSAGE * content.count if isinstance(content, Conversation) else 0

    return sample(batch, len(texts), cost, sum([len(text.text) for text in texts]))


def every_so_many(batch: Batch, numbers: Sequence[int], one_of: int) -> Sequence[int]:
    """Choose one in a number of records of a batch, by any numbers that they have; the same ones in each run."""
    return numbers[random.Random(f"{batch.split.number}-{batch.part}").randrange(one_of) :: one_of]


def noted_difference(batch: Batch, engine: str, step: str, position: int, difference: str) -> Outcomes:
    """Note that the engines differ.

    Args:
        batch: the batch, as it was before the step.
        engine: one of ENGINES.
        step: rendering or tokenizing.
        position: of the first record that differs.
        difference: how it differs.

    Returns:
        The outcomes of the batch, with the note.

    Raises:
        InputError: with the engine fast, which gives no way to the reference.
    """
    if engine == "fast":
        piece, in_file = batch.split.origin(position)
        raise InputError(
            f"{piece.url}, {in_file:,}: {step} by the fast engine differs from the reference: {difference}. Use the "
            "engine reference, or auto."
        )
    return batch.outcomes.note(DIFFERS, 1, (position, f"{step}: {difference}"))
