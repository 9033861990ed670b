"""Label: from ids to labels: the id of a token that is trained on, -100 for any other."""

from __future__ import annotations

import numpy as np

from transforms.model.batches import Labels, Tokens
from transforms.rows import IGNORED
from transforms.rows.parts import PARTS, code_kinds


def build_labels(batch: Tokens) -> Labels:
    """Make the labels of each row. A row without a trained token is removed; a record without a row left is dropped."""
    trained, parts = _trained(batch)
    labels = batch.succeeded_by(
        Labels,
        ids=batch.ids,
        labels=np.where(trained, batch.ids, np.int32(IGNORED)),
        offsets=batch.offsets,
        facts=batch.facts,
        parts=parts,
    )
    if labels.trained_tokens.all():
        return labels
    rows = np.flatnonzero(labels.trained_tokens)
    dropped = np.setdiff1d(np.arange(batch.facts.records()), batch.facts.record_numbers()[rows])
    drops = batch.facts.drops(dropped, "no_trained_tokens", np.diff(batch.offsets), labels.trained_tokens)
    return labels.take(rows, batch.outcomes.drop(drops))


def _trained(batch: Tokens) -> tuple[np.ndarray, np.ndarray | None]:
    """Find which tokens are trained on, and their parts, as Labels has them.

    A token is of the first of its spans whose part is trained on, or of the first one.
    """
    if batch.parts is None or batch.trained_parts is None:
        return batch.trained, None if batch.parts is None else batch.parts[:, 0]
    kinds_chosen = np.array([False, *(part in batch.trained_parts for part in PARTS)])
    is_chosen = kinds_chosen[code_kinds(batch.parts)]
    first = np.argmax(is_chosen, axis=1)[:, None]
    without_turn = batch.parts[:, 0] == 0  # of a text that has none, or of no span
    trained = batch.trained & (without_turn | is_chosen.any(axis=1))
    return trained, np.take_along_axis(batch.parts, first, axis=1)[:, 0]
