"""Rows that are tokenized already."""

from __future__ import annotations

import pytest

from transforms import RecordError
from transforms.inputs.reading import ROLE_NAMES, Reading, ReadOptions
from transforms.inputs.token_rows import token_row


@pytest.mark.parametrize(
    ("weights", "outcome"),
    [
        ([0, 1.0, 1], [False, True, True]),
        ([0.0, 0, 1], [False, False, True]),
        ([1, 0.5, 1], "bad_weight"),
        ([1, None, 1], "bad_weight"),
        ([1, 1], "bad_tokens"),
        ("1", "bad_tokens"),
    ],
)
def test_loss_weights_of_a_tokenized_row_are_honoured_or_the_row_is_rejected(weights, outcome):
    row = {"input_ids": [5, 6, 7], "labels": [5, 6, 7], "loss_weights": weights}
    if isinstance(outcome, str):
        with pytest.raises(RecordError) as rejected:
            token_row(row, Reading(ReadOptions(ROLE_NAMES)))
        assert rejected.value.reason == outcome
    else:
        assert token_row(row, Reading(ReadOptions(ROLE_NAMES))).trained.tolist() == outcome
