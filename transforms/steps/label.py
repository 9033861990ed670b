"""Label: from ids to labels: the id of a token that is trained on, -100 for any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from transforms.model.batches import Labels, Tokens
from transforms.rows import IGNORED
from transforms.rows.ragged import offsets_of, slices_of
from transforms.steps.base import Step


def build_labels(batch: Tokens) -> Labels:
    """Make the labels of each row. A row without a trained token is removed; a record without a row left is dropped."""
    labels = batch.succeeded_by(
        Labels,
        ids=batch.ids,
        labels=np.where(batch.trained, batch.ids, np.int32(IGNORED)),
        offsets=batch.offsets,
        source=batch.source,
        weights=batch.weights,
        parts=batch.parts,
    )
    if labels.trained_tokens.all():
        return labels
    rows = np.flatnonzero(labels.trained_tokens)
    starts, lengths = batch.offsets[rows], np.diff(batch.offsets)[rows]
    source = batch.source.take(rows)
    dropped = np.setdiff1d(np.arange(batch.source.records()), batch.source.record_numbers()[rows])
    drops = batch.source.drops(dropped, "no_trained_tokens", np.diff(batch.offsets), labels.trained_tokens)
    return batch.succeeded_by(
        Labels,
        batch.outcomes.drop(drops),
        ids=slices_of(batch.ids, starts, lengths),
        labels=slices_of(labels.labels, starts, lengths),
        offsets=offsets_of(lengths),
        source=source,
        weights=None if batch.weights is None else slices_of(batch.weights, starts, lengths),
        parts=None if batch.parts is None else slices_of(batch.parts, starts, lengths),
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
