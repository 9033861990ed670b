"""Label: from ids to labels: the id of a token that is trained on, -100 for any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from transforms.model.batches import Labels, Tokens
from transforms.rows import IGNORED
from transforms.rows.ragged import offsets_of, slices_of, sums_of
from transforms.steps.base import Step


def build_labels(batch: Tokens) -> Labels:
    """Make the labels of each row. A row without a trained token is removed; a record without a row left is dropped."""
    labels = np.where(batch.trained, batch.ids, np.int32(IGNORED))
    rows = np.flatnonzero(sums_of(batch.trained, batch.offsets))
    lengths = np.diff(batch.offsets)[rows]
    weights = batch.weights
    if len(rows) == len(batch.offsets) - 1:
        return batch.succeeded_by(
            Labels, ids=batch.ids, labels=labels, offsets=batch.offsets, source=batch.source, weights=weights
        )
    source = batch.source.take(rows)
    return batch.succeeded_by(
        Labels,
        batch.outcomes.drop("no_trained_tokens", batch.source.records() - source.records()),
        ids=slices_of(batch.ids, batch.offsets[rows], lengths),
        labels=slices_of(labels, batch.offsets[rows], lengths),
        offsets=offsets_of(lengths),
        source=source,
        weights=None if weights is None else slices_of(weights, batch.offsets[rows], lengths),
    )


def _labeller() -> Callable[[Tokens], Labels]:
    return build_labels


class BuildLabels(Step):
    """Label each token with its id if it is trained on, and with -100 otherwise.

    PCollection[Parts[Tokens]] -> PCollection[Parts[Labels]].
    """

    input, output = Tokens, Labels

    def __init__(self) -> None:
        super().__init__(_labeller)
