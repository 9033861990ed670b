"""Spot checks: the texts of a batch that tokenizers encodes too, to compare the ids of gigatoken with its own."""

from __future__ import annotations

import random

from transforms.model.batches import Batch

# tokenizers encodes a character in about a microsecond, the pipeline takes a thirtieth of that for all steps. So this
# share of the characters of a batch takes 1.5% of its time. In the first chunk of a task it takes up to 4 ms more.
_SHARE = 1 / 2048
_AT_FIRST = 4096
# How many more texts are drawn than have room if all cost the same.
_MORE = 4


def sample(batch: Batch, sizes: list[int], most: int) -> list[int]:
    """Choose the texts of a batch that tokenizers encodes too; the same ones in each run.

    Args:
        batch: its task and chunk are the seed.
        sizes: the characters of its texts.
        most: how many characters of a text are encoded.

    Returns:
        Numbers of texts, in ascending order. On average they cost a small share of the batch. In the first chunk of a
        task they cost somewhat more, so that there is at least one: the first text, or else the cheapest one.
    """
    count = len(sizes)
    if not count:
        return []
    draw = random.Random(f"{batch.task.number}-{batch.chunk}")
    drawn = draw.sample(range(count), min(count, int(count * _SHARE) + _MORE))
    room = sum(sizes) * _SHARE
    if batch.chunk == 0:
        drawn = [0, *(number for number in drawn if number)]
        room += _AT_FIRST
    chosen = []
    for number in drawn:
        if (own := min(sizes[number], most)) > room:
            if draw.random() * own < room:  # so that on average the room is used up, and no more
                chosen.append(number)
            break
        chosen.append(number)
        room -= own
    if not chosen and batch.chunk == 0:
        chosen = [min(range(count), key=sizes.__getitem__)]
    return sorted(chosen)
