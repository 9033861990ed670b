"""Pairs: two answers to one prompt, the chosen and the rejected one, side by side in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transforms.rows.ragged import offsets_of, slices_of

if TYPE_CHECKING:
    from transforms.model.batches import Labels
    from transforms.rows.segments import Segments


def pairs_in(batch: Labels, segments: Segments, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the records of which a pair is left after both answers are cut.

    Args:
        batch: the labelled rows: of each record the chosen answer with its prompt, then the rejected one.
        segments: what is left of the rows with a label left, one segment of each.
        left: int64, shape (rows,): the labels of each row after cutting.

    Returns:
        bool, shape (records,): whether two rows are left, and they differ; whether two rows are left that are equal.
    """
    numbers, records = batch.source.record_numbers(), batch.source.records()
    both = np.bincount(numbers, left > 0, records) == 2
    of_pairs = segments.take(both[numbers[segments.source]])
    starts = batch.offsets[of_pairs.source] + of_pairs.start
    equal = np.zeros(records, bool)
    equal[both] = equal_pairs(slices_of(batch.ids, starts, of_pairs.length), of_pairs.length)
    return both & ~equal, equal


def equal_pairs(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return which pairs have two equal answers.

    Args:
        ids: int32, shape (tokens,): of the first answer of each pair, with its prompt, then the second one.
        lengths: int64, shape (2 * pairs,): tokens of each answer.

    Returns:
        bool, shape (pairs,).
    """
    first, second = lengths.reshape(-1, 2).T
    equal = first == second
    starts = offsets_of(lengths)[:-1].reshape(-1, 2)[equal]
    alike = slices_of(ids, starts[:, 0], first[equal]) == slices_of(ids, starts[:, 1], first[equal])
    equal[equal] = np.logical_and.reduceat(alike, offsets_of(first[equal])[:-1]) if len(alike) else False
    return equal
