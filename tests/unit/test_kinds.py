"""Kinds of option values that have a unit."""

from __future__ import annotations

import pytest

from transforms.base.kinds import duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("30s", 30), ("10m", 600), ("6h", 21_600), ("7d", 604_800), ("007d", 604_800)]
)
def test_a_duration_is_a_number_of_seconds(text, seconds):
    assert duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "10 m", "10M", "1h30m", "7w", "10m\n", "١s"])
def test_a_duration_has_one_number_and_one_unit(text):
    with pytest.raises(ValueError, match=r"^expected a duration, such as 30s, 10m, 6h or 7d\.$"):
        duration.parse(text)
