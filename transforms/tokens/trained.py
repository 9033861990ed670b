"""Which tokens are trained on: those with a character in a span, as in transformers' assistant masks."""

from __future__ import annotations

import numpy as np

from transforms.rows.ragged import slice_indices


def is_trained(starts: np.ndarray, stops: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Find the tokens with at least one character in a span.

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
    if np.all(starts[1:] >= starts[:-1]) and np.all(stops[1:] >= stops[:-1]):
        # In ascending order the tokens of a span are a range. A token that lies in two spans is in the first.
        # It begins with a token that stops later than the span starts, or with one of no length that is not before it.
        edges = np.searchsorted(starts, spans)
        np.minimum(edges[:, 0], np.searchsorted(stops, spans[:, 0], side="right"), out=edges[:, 0])
        lengths = np.diff(np.maximum.accumulate(edges.ravel()), prepend=0, append=len(starts))
        return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    first, last = spans.T
    first_that_ends_later = np.searchsorted(last, starts, side="right")
    exists = first_that_ends_later < len(spans)
    span_starts = first[np.minimum(first_that_ends_later, len(spans) - 1)]
    return exists & (span_starts < np.maximum(stops, starts + 1))


def find_token_spans(starts: np.ndarray, stops: np.ndarray, spans: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Find the spans which each token has a character in, the first one of each kind.

    Args:
        starts, stops, spans: as for is_trained.
        kinds: int32, shape (spans,): the kind of each span, not negative.

    Returns:
        int64, shape (tokens, most): the numbers of the spans of each token, ascending, and -1 after the last one. There
        is at least one column.
    """
    first = np.searchsorted(spans[:, 1], starts, side="right")
    counts = np.maximum(np.searchsorted(spans[:, 0], np.maximum(stops, starts + 1)) - first, 0)
    table = np.where(counts > 0, first, -1)[:, None]
    several = np.flatnonzero(counts > 1)
    tokens, numbers = np.repeat(several, counts[several]), slice_indices(first[several], counts[several])
    firsts = np.sort(np.unique(tokens << 32 | kinds[numbers], return_index=True)[1])
    tokens, numbers = tokens[firsts], numbers[firsts]
    columns = np.arange(len(tokens)) - np.searchsorted(tokens, tokens)
    table = np.pad(table, ((0, 0), (0, columns.max(initial=0))), constant_values=-1)
    table[tokens, columns] = numbers
    return table
