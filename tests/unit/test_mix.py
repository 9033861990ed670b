"""A mix: how many records of each source have how many copies, and which."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms import InputError
from transforms.exchange.mix import ALL, Amount, Demand, Mix, SourceMix, demands_of, mix_places_of, threshold_of


def counts_of(mix: Mix, *available: Amount) -> list[list[float]]:
    """For each source how much of it has a first copy, a second one and so on."""
    return [[float(demand.amount) for demand in demands] for demands in demands_of(mix, available)]


def mix_of(*sources: dict[str, float], **options: object) -> Mix:
    return Mix(tuple(SourceMix(str(number), **source) for number, source in enumerate(sources)), **options)


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        (mix_of({"epochs": 2.5}, {}), [[10, 10, 5], [40]]),
        (mix_of({"epochs": 0.3}, {"epochs": 0.99}), [[3], [40]]),  # 39.6 is 40
        (mix_of({"max_examples": 4, "epochs": 1.5}, {"max_examples": 99}), [[4, 2], [40]]),
        # In trained tokens: 1,000 and 200.
        (mix_of({"max_tokens": 300}, {}), [[300], [40]]),
        (mix_of({"weight": 1}, {"weight": 1}), [[200], [200]]),
        (mix_of({"weight": 1}, {"weight": 1, "epochs": 2.5}), [[500], [200, 200, 100]]),
        (mix_of({"weight": 1}, {"weight": 3}, tokens=800), [[200], [200, 200, 200]]),
        (mix_of({}, {}, tokens=600), [[500], [100]]),
        (mix_of({"weight": 1}, {"weight": 1}, by="examples"), [[10], [10]]),
        (mix_of({"weight": 1, "max_tokens": 100}, {"weight": 1}), [[100], [100]]),
        (mix_of({"weight": 1, "max_examples": 1}, {"weight": 1}), [[100], [100]]),
    ],
)
def test_what_each_source_has(mix, expected):
    assert counts_of(mix, Amount(10, 1000), Amount(40, 200)) == expected


def test_share_that_cannot_be_met_is_an_error():
    with pytest.raises(InputError, match="the source 1 has no record that is trained on"):
        demands_of(mix_of({"weight": 1}, {"weight": 1}), [Amount(10, 1000), Amount(0, 0)])
    with pytest.raises(InputError, match="the source 0 is to have 500 trained tokens, more than its max_tokens 100"):
        demands_of(
            mix_of({"weight": 1, "max_tokens": 100}, {"weight": 1}, tokens=1000), [Amount(9, 900), Amount(9, 90)]
        )


def test_source_without_records_has_no_copies():
    assert counts_of(mix_of({"epochs": 2.5}, {"epochs": 2}), Amount(0, 0), Amount(1, 3)) == [[], [1, 1]]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.fractions(0, 1, max_denominator=97))
def test_splits_have_exactly_as_many_records_together_as_asked(sizes, share):
    total = sum(sizes)
    demand = Demand(Fraction(int(share * total)), total, is_tokens=False)
    before, chosen = Amount(0, 0), 0
    for split, size in enumerate(sizes):
        places = np.sort(mix_places_of(3, split, np.arange(size)))
        own = Amount(size, size)
        threshold = threshold_of(demand, before, own, places, np.ones(size, np.int64))
        chosen += sum(place < threshold for place in places.tolist())
        before += own
    assert chosen == demand.amount


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=200), st.fractions(0, 1, max_denominator=97))
def test_tokens_of_a_split_are_as_near_to_its_share_as_whole_records_can_be(trained, share):
    tokens = np.array(trained)
    demand = Demand(share * 3 * int(tokens.sum()), 3 * int(tokens.sum()), is_tokens=True)  # of three such splits
    places = np.sort(mix_places_of(0, 0, np.arange(len(tokens))))
    threshold = threshold_of(demand, Amount(0, 0), Amount(len(tokens), int(tokens.sum())), places, tokens)
    chosen = sum(tokens[[place < threshold for place in places.tolist()]])
    nearest = min(abs(sum(trained[:count]) - share * sum(trained)) for count in range(len(trained) + 1))
    assert abs(chosen - share * int(tokens.sum())) == pytest.approx(float(nearest), abs=1e-6)
    assert (threshold == ALL) == (chosen == tokens.sum())
