"""Proof: the fast engine is compared with the reference on a sample of each batch, while it runs."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence

from transforms.errors import InputError
from transforms.model.batches import Batch
from transforms.model.examples import Conversation, Text
from transforms.model.outcomes import Outcomes

# The reference tokenizes a character in about a microsecond, the pipeline takes a thirtieth of that for all steps. So
# three steps with this share of the characters of a batch take 5% of its time. In the first part of a split they take
# up to 12 ms more, 8% of that for a split of 4 MiB.
_SHARE = 1 / 2048
_AT_FIRST = 4096
# So many more records are drawn than have room if all cost the same.
_MORE = 4
# The reference renders and compares a message in about so many microseconds.
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
    """Choose the texts of a batch that the reference renders too, see sample; only conversations cost something."""

    def cost(number: int) -> int:
        content = texts[number].example.content
        return _MESSAGE * content.count if isinstance(content, Conversation) else 0

    return sample(batch, len(texts), cost, sum([len(text.text) for text in texts]))


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
    piece, in_file = batch.split.origin(position)
    record = f"{piece.url}, {in_file:,}"
    if engine == "fast":
        raise InputError(
            f"{record}: {step} by the fast engine differs from the reference: {difference}. Use the engine auto."
        )
    logging.getLogger(__name__).warning("%s: %s falls back to the reference: %s", record, step, difference)
    return batch.outcomes.note(f"{step}_fell_back_to_reference", 1, (position, difference))
