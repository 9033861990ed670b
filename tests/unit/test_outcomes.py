"""Outcomes: the counts of a batch of records."""

from __future__ import annotations

from transforms.model.outcomes import Outcomes


def test_records_that_the_reference_processed_are_counted_by_reason_with_the_first_example():
    outcomes = Outcomes(read=9).count_tokenized_by_reference("small_input", 4)
    outcomes = outcomes.count_tokenized_by_reference("fell_back", 2, (7, "other tokens from 3 on"))
    outcomes = outcomes.count_tokenized_by_reference("fell_back", 3, (8, "other tokens from 0 on"))
    outcomes = outcomes.count_rendered_by_reference("engine", 1, (1, "engine is reference"))
    assert outcomes == Outcomes(
        read=9,
        tokenized_by_reference={"small_input": 4, "fell_back": 5},
        rendered_by_reference={"engine": 1},
        first_examples={
            "tokenized_by_reference": (7, "fell_back: other tokens from 3 on"),
            "rendered_by_reference": (1, "engine: engine is reference"),
        },
    )


def test_nothing_is_recorded_if_no_record_is_counted():
    assert Outcomes().count_tokenized_by_reference("engine", 0, (0, "unused")) == Outcomes()
    assert Outcomes().note("unused", 0, (0, "unused")) == Outcomes()
