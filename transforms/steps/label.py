"""Label: from ids and spans to labels: the id of a token that is trained on, -100 for any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from transforms.model.batches import Labels, Tokens
from transforms.rows import IGNORED
from transforms.rows.ragged import offsets_of, slices_of, sums_of
from transforms.steps.base import Step


def is_trained(starts: np.ndarray, stops: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Find the tokens of which at least one character is in a span, as transformers' assistant masks do.

    Args:
        starts: int64, shape (tokens,): where each token starts, in the units of the spans.
        stops: int64, shape (tokens,): where it stops. A token of no length (a byte of a character, a prefix) counts as
            the character at its start.
        spans: int64, shape (spans, 2): (start, stop), ascending and disjoint.

    Returns:
        bool, shape (tokens,).
    """
    if not len(spans):
        return np.zeros(len(starts), bool)
    if np.any(stops <= starts):
        stops = np.maximum(stops, starts + 1)
    if np.all(starts[1:] >= starts[:-1]) and np.all(stops[1:] >= stops[:-1]):
        # In ascending order the tokens of a span are a range, of which a token that lies in two spans is in the first.
        ranges = np.searchsorted(stops, spans[:, 0], side="right"), np.searchsorted(starts, spans[:, 1], side="left")
        edges = np.maximum.accumulate(np.stack(ranges, axis=1).ravel())
        lengths = np.diff(edges, prepend=0, append=len(starts))
        return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    first_that_ends_later = np.searchsorted(spans[:, 1], starts, side="right")
    exists = first_that_ends_later < len(spans)
    span_starts = spans[np.minimum(first_that_ends_later, len(spans) - 1), 0]
    return exists & (span_starts < stops)


def weights_of(starts: np.ndarray, spans: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Find the weight of each token that is trained on: that of the first span which it has a character in.

    Args:
        starts, spans: as for is_trained.
        weights: float32, shape (spans,): the weight of each span.

    Returns:
        float32, shape (tokens,). The values of tokens that are not trained on mean nothing.
    """
    first_that_ends_later = np.searchsorted(spans[:, 1], starts, side="right")
    return weights[np.minimum(first_that_ends_later, len(spans) - 1)]


def build_labels(batch: Tokens) -> Labels:
    """Make the labels of each row. A row without a trained token is removed; a record without a row left is dropped."""
    trained = is_trained(batch.starts, batch.stops, batch.spans)
    labels = np.where(trained, batch.ids, np.int32(IGNORED))
    rows = np.flatnonzero(sums_of(trained, batch.offsets))
    lengths = np.diff(batch.offsets)[rows]
    weights = None if batch.weights is None else weights_of(batch.starts, batch.spans, batch.weights)
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

    PCollection[Tokens] -> PCollection[Labels].
    """

    input, output = Tokens, Labels

    def __init__(self) -> None:
        super().__init__(_labeller)
