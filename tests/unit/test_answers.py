"""The columns of prompts and answers: what they have of a row, and that the row can be made of them again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.model.batches import RowTable
from transforms.rows import IGNORED
from transforms.rows.answers import ANSWER_COLUMNS, COMPLETION_COLUMNS, PAIR_COLUMNS, answer_column, with_tokens
from transforms.rows.ragged import offsets_of


def table_of(rows: list[list[tuple[list[int], list[bool]]]]) -> RowTable:
    """Rows of segments, each with its ids, and whether each of them is trained on."""
    segments = [segment for row in rows for segment in row]
    lengths = np.array([len(ids) for ids, _ in segments], np.int64)
    ids = np.array([token for of_segment, _ in segments for token in of_segment], np.int32)
    trained = np.array([flag for _, flags in segments for flag in flags], bool)
    of_rows = offsets_of(np.array([len(row) for row in rows]))
    return RowTable(
        ids=ids,
        labels=np.where(trained, ids, np.int32(IGNORED)),
        offsets=offsets_of(lengths)[of_rows],
        segment_lengths=lengths,
        segment_offsets=of_rows,
        sources=np.arange(len(segments)),
    )


def lists(column: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    values, offsets = column
    return [values[start:stop].tolist() for start, stop in pairwise(offsets)]


# Two pairs. Of the first one, the second answer's last token but one is not trained on; the prompts of the second one
# have different second tokens, so that only the first one is a prompt.
PAIRS = table_of([
    [([1, 2, 3, 4], [False, False, True, True]), ([1, 2, 5, 6, 7], [False, False, True, False, True])],
    [([1, 8, 3], [False, False, True]), ([1, 9, 9, 3], [False, False, False, True])],
])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prompt_ids", [[1, 2], [1]]),
        ("chosen_ids", [[3, 4], [8, 3]]),
        ("rejected_ids", [[5, 6, 7], [9, 9, 3]]),
        ("chosen_mask", [[1, 1], [0, 1]]),
        ("rejected_mask", [[1, 0, 1], [0, 0, 1]]),
    ],
)
def test_a_pair_has_a_prompt_and_two_answers(name, expected):
    assert lists(answer_column(PAIRS, name, PAIR_COLUMNS)) == expected


def test_answers_are_whole_conversations_without_a_column_of_the_prompt():
    names = ("chosen_ids", "rejected_ids")
    found = [lists(answer_column(PAIRS, name, names)) for name in names]
    assert found == [[[1, 2, 3, 4], [1, 8, 3]], [[1, 2, 5, 6, 7], [1, 9, 9, 3]]]
    columns = with_tokens({name: answer_column(PAIRS, name, names) for name in names})
    assert columns.keys() == {"input_ids", "seq_lengths"}  # without masks, it is not known what is trained on
    assert lists(columns["input_ids"]) == [[1, 2, 3, 4, 1, 2, 5, 6, 7], [1, 8, 3, 1, 9, 9, 3]]


def segments(prompt: list[int]) -> st.SearchStrategy[tuple[list[int], list[bool]]]:
    answers = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6)
    return answers.filter(lambda answer: any(flag for _, flag in answer)).map(
        lambda answer: (prompt + [token for token, _ in answer], [False] * len(prompt) + [flag for _, flag in answer])
    )


def rows_of(answers: int) -> st.SearchStrategy[list[list[tuple[list[int], list[bool]]]]]:
    prompts = st.lists(st.integers(0, 9), max_size=4)
    return st.lists(
        prompts.flatmap(lambda prompt: st.lists(segments(prompt), min_size=answers, max_size=answers)), max_size=5
    )


@pytest.mark.parametrize(("answers", "columns"), [(2, PAIR_COLUMNS), (1, COMPLETION_COLUMNS)])
@given(data=st.data())
def test_rows_can_be_made_of_their_columns_again(answers, columns, data):
    table = table_of(data.draw(rows_of(answers)))
    found = with_tokens({name: answer_column(table, name, columns) for name in columns})
    assert not {*found} & {*ANSWER_COLUMNS}
    for name, values in (("input_ids", table.ids), ("labels", table.labels)):
        assert lists(found[name]) == lists((values, table.offsets))
    assert lists(found["seq_lengths"]) == lists((table.segment_lengths, table.segment_offsets))
