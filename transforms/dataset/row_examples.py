"""The examples in a row of a dataset: of a packed row each one apart, and with labels that are not shifted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from transforms.rows import IGNORED
from transforms.rows.layout import RowLayout
from transforms.rows.ragged import lengths_to_offsets

# The columns that say what the examples of a row are, as far as they were written.
EXAMPLE_COLUMNS = ("input_ids", "labels", "loss_mask", "seq_lengths", "position_ids", "part_lengths", "part_kinds")


class RowExamples(NamedTuple):
    """The examples of a row.

    Attributes:
        ids: int32, shape (tokens,).
        labels: int32, shape (tokens,): the label of each token, as before a shift.
        offsets: int64, shape (examples + 1,): example i has the tokens offsets[i]:offsets[i + 1].
        kinds: int8, shape (tokens,): the part of a turn of each token, as a number of KINDS; None without the columns.
    """

    ids: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    kinds: np.ndarray | None

    @property
    def trained(self) -> np.ndarray:
        """Whether each token is trained on: bool, shape (tokens,)."""
        return self.labels != IGNORED


def find_examples(row: Mapping[str, Any], layout: RowLayout) -> RowExamples:
    """Find the examples of a row.

    Args:
        row: the values of its columns, by name. It has input_ids.
        layout: of the rows. If labels are shifted, what was the last token of the row is in its labels alone; it is
            there again, if it was trained on.

    Returns:
        The examples. Without labels or a loss_mask, no token has a label. A packed row is taken for one example if its
        columns do not say where its examples begin.
    """
    values = {name: np.array(row[name], np.int32) for name in EXAMPLE_COLUMNS if name in row}
    ids = values["input_ids"]
    labels = np.full(len(ids), IGNORED, np.int32)
    if "labels" in values:
        labels = values["labels"]
    elif "loss_mask" in values and not layout.shift_labels:
        labels = np.where(values["loss_mask"] != 0, ids, IGNORED)
    kinds = None
    if "part_kinds" in values:
        kinds = np.repeat(values["part_kinds"].astype(np.int8), values["part_lengths"])
    offsets = np.array([0, len(ids)])
    if layout.packed and "seq_lengths" in values:
        offsets = lengths_to_offsets(values["seq_lengths"])
    elif layout.packed and "position_ids" in values:
        offsets = np.union1d(offsets, np.flatnonzero(values["position_ids"] == 0))
    if layout.shift_labels and len(ids):
        count = len(ids) + int(labels[-1] != IGNORED)
        ids, labels = np.append(ids, labels[-1])[:count], np.insert(labels, 0, IGNORED)[:count]
        kinds = None if kinds is None else np.insert(kinds, 0, 0)[:count]
        offsets[-1] = count
    return RowExamples(ids, labels, offsets, kinds)
