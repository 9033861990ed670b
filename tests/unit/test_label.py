from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from support.chats import SPLIT
from transforms.model.batches import RowSource, Tokens
from transforms.model.outcomes import Outcomes
from transforms.rows.parts import PARTS, code_of
from transforms.steps.label import build_labels
from transforms.tokens.trained import is_trained, spans_of_tokens

CHARACTERS = 24


def tokens_of(
    rows: list[list[int]],
    ranges: list[tuple[int, int]],
    spans: list[tuple[int, int]],
) -> Tokens:
    """Build a batch of rows. ranges: characters of each token. Each row is from another record and keeps its id."""
    lengths = [len(row) for row in rows]
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    edges = np.array(spans, np.int64).reshape(-1, 2)
    return Tokens(
        split=SPLIT,
        part=3,
        last=False,
        outcomes=Outcomes(read=len(rows)),
        ids=np.array([token for row in rows for token in row], np.int32),
        offsets=np.cumsum([0, *lengths]).astype(np.int64),
        trained=is_trained(starts, stops, edges),
        source=RowSource(
            positions=np.array([100 + i for i in range(len(rows))], np.int64),
            validation=np.array([i % 2 == 1 for i in range(len(rows))], bool),
            columns=pa.table({"id": pa.array([f"record-{i}" for i in range(len(rows))], pa.string())}),
        ),
    )


def rows_of(values: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    return [values[start:stop].tolist() for start, stop in pairwise(offsets)]


def naive_is_trained(token_range: tuple[int, int], spans: list[tuple[int, int]]) -> bool:
    start, stop = token_range
    return any(first <= character < end for character in range(start, max(stop, start + 1)) for first, end in spans)


@st.composite
def disjoint_spans(draw: st.DrawFn, first: int = -1, last: int = CHARACTERS) -> list[tuple[int, int]]:
    """Ascending spans of at least one character; some touch."""
    edges = sorted(draw(st.sets(st.integers(first, last), max_size=8)))
    spans = list(pairwise(edges))
    return [span for span in spans if draw(st.booleans())]


# In any order, overlapping or empty: the bytes of one character have the same range, added prefixes have an empty one.
ranges = st.tuples(st.integers(-1, CHARACTERS), st.integers(0, 5)).map(
    lambda token_range: (token_range[0], token_range[0] + token_range[1])
)


in_any_order = st.lists(ranges, max_size=20)
# Both edges ascend, as those of tokens do; tokens may overlap, have no length, or leave characters out.
ascending = in_any_order.map(
    lambda some: list(zip(*(sorted(edges) for edges in zip(*some, strict=True)), strict=True)) if some else []
)


@given(st.one_of(in_any_order, ascending), disjoint_spans())
@example([(4, 4)], [(4, 5)])
@example([(5, 5)], [(4, 5)])
@example([(3, 4), (4, 6), (5, 9), (9, 10)], [(5, 6), (8, 9)])
def test_token_is_trained_if_one_of_its_characters_is_in_a_span(ranges, spans):
    starts = np.array([start for start, _ in ranges], np.int64)
    stops = np.array([stop for _, stop in ranges], np.int64)

    trained = is_trained(starts, stops, np.array(spans, np.int64).reshape(-1, 2))

    assert trained.dtype == bool
    assert trained.tolist() == [naive_is_trained(token_range, spans) for token_range in ranges]


def test_empty_token_is_at_its_start():
    starts = stops = np.array([2, 3, 4, 5], np.int64)
    assert is_trained(starts, stops, np.array([[3, 5]], np.int64)).tolist() == [False, True, True, False]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[int]], list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
    """Rows of ids, and for each row the ranges of its tokens and its spans, in characters of its text."""
    token = st.tuples(st.integers(0, 2**31 - 1), ranges)
    rows = draw(st.lists(st.tuples(st.lists(token, max_size=6), disjoint_spans()), max_size=8))
    return [[i for i, _ in row] for row, _ in rows], [[p for _, p in row] for row, _ in rows], [s for _, s in rows]


def moved(ranges: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Move the ranges of each row so that no two rows share a character."""
    distance = CHARACTERS + 10
    return [
        (start + row * distance, stop + row * distance) for row, of_row in enumerate(ranges) for start, stop in of_row
    ]


@given(batches())
def test_labels_are_ids_for_trained_tokens_and_ignored_for_others(batch):
    rows, ranges, spans = batch
    expected = [
        [
            token if naive_is_trained(token_range, row_spans) else -100
            for token, token_range in zip(ids, row, strict=True)
        ]
        for ids, row, row_spans in zip(rows, ranges, spans, strict=True)
    ]
    kept = [i for i, labels in enumerate(expected) if any(label != -100 for label in labels)]

    labels = build_labels(tokens_of(rows, moved(ranges), moved(spans)))

    assert rows_of(labels.ids, labels.offsets) == [rows[i] for i in kept]
    assert rows_of(labels.labels, labels.offsets) == [expected[i] for i in kept]
    assert (labels.ids.dtype, labels.labels.dtype, labels.offsets.dtype) == (np.int32, np.int32, np.int64)
    assert np.all((labels.labels == labels.ids) | (labels.labels == -100))


@given(batches())
def test_row_without_label_is_dropped_and_counted(batch):
    rows, ranges, spans = batch
    kept = [i for i in range(len(rows)) if any(naive_is_trained(token_range, spans[i]) for token_range in ranges[i])]

    labels = build_labels(tokens_of(rows, moved(ranges), moved(spans)))

    lost = len(rows) - len(kept)
    assert labels.outcomes.read == len(rows)
    assert labels.outcomes.dropped == ({"no_trained_tokens": lost} if lost else {})
    assert labels.source.positions.tolist() == [100 + i for i in kept]
    assert labels.source.validation.tolist() == [i % 2 == 1 for i in kept]
    assert labels.source.columns["id"].to_pylist() == [f"record-{i}" for i in kept]


def test_rows_before_and_after_a_dropped_row_keep_their_labels():
    rows: list[Any] = [[11, 12], [21, 22, 23], [31]]
    ranges = [(0, 3), (3, 5), (10, 12), (12, 12), (12, 14), (20, 22)]

    labels = build_labels(tokens_of(rows, ranges, [(3, 4), (20, 21)]))

    assert rows_of(labels.ids, labels.offsets) == [[11, 12], [31]]
    assert rows_of(labels.labels, labels.offsets) == [[-100, 12], [31]]
    assert labels.outcomes.dropped == {"no_trained_tokens": 1}
    assert (labels.split, labels.part, labels.last) == (SPLIT, 3, False)


@given(batches(), st.data())
@example(([[1]], [[(0, 4)]], [[(0, 1), (1, 2), (2, 3), (3, 4)]]), None)
def test_token_is_of_the_first_of_its_parts_that_is_trained_on(batch, data):
    rows, ranges, spans = batch
    trained_parts = tuple(part for part in PARTS if (data.draw(st.booleans()) if data else part == "end"))
    kinds = [
        [data.draw(st.sampled_from(PARTS)) if data else ("content", "end")[i % 2] for i in range(len(o))] for o in spans
    ]
    codes = [code_of(kind, row % 2 + 1) for row, own in enumerate(kinds) for kind in own]
    starts, stops = np.array(moved(ranges), np.int64).reshape(-1, 2).T
    edges = np.array(moved(spans), np.int64).reshape(-1, 2)
    expected = []
    for row, own in enumerate(ranges):
        found = []
        for token in own:
            held = [kind for kind, span in zip(kinds[row], spans[row], strict=True) if naive_is_trained(token, [span])]
            chosen = [kind for kind in held if kind in trained_parts]
            code = code_of((chosen or held)[0], row % 2 + 1) if held else 0
            found.append((bool(chosen), code))
        expected += found if any(is_trained for is_trained, _ in found) else []

    numbers = spans_of_tokens(starts, stops, edges, np.array(codes, np.int32))
    parts = np.append(np.array(codes, np.int32), np.int32(0))[numbers]
    tokens = tokens_of(rows, moved(ranges), moved(spans))
    labels = build_labels(dataclasses.replace(tokens, parts=parts, trained_parts=trained_parts))

    trained = labels.labels != -100
    assert trained.tolist() == [is_trained for is_trained, _ in expected]
    assert labels.parts.tolist() == [code for _, code in expected]
    assert all(len({*row} - {0}) == sum(code != 0 for code in row) for row in parts.tolist())


def test_record_of_several_rows_is_dropped_only_if_no_row_has_a_label():
    batch = tokens_of([[1], [2], [3], [4]], [(0, 1), (5, 6), (10, 11), (15, 16)], [(5, 6)])
    source = dataclasses.replace(batch.source, positions=np.array([7, 7, 8, 8]))
    labels = build_labels(dataclasses.replace(batch, source=source, outcomes=Outcomes(read=2)))
    assert labels.source.positions.tolist() == [7]
    assert rows_of(labels.labels, labels.offsets) == [[2]]
    assert dict(labels.outcomes.dropped) == {"no_trained_tokens": 1}
