"""Any template with any conversations: the right text, masks and tokens, by both engines, alone and in any order."""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import count

import pytest

from support.cases import Case, turns_are_known
from support.engines import shown_failure
from support.models import DEEPSEEK
from support.templates import models_and_odd, templates_of_trl

LONG = "TEST_SLOW" in os.environ
# The fast lane has one of each kind.
IN_FAST = models_and_odd()
TEMPLATES = {**templates_of_trl(), **IN_FAST}
# They print no turn where the mask could be established.
REFUSED = ("own_remember", "own_remember_sections", "repeats_question")
NAMES = [pytest.param(name, marks=() if name in IN_FAST else pytest.mark.slow) for name in TEMPLATES]


@pytest.mark.parametrize("part", range(40 if LONG else 4))
def test_generated_templates(part: int):
    counts = Counter[str]()
    for seed in range(15 * part, 15 * part + 15):
        case = Case(seed)
        of_known = counts if turns_are_known(case.features or {}) else None
        assert shown_failure(case, each_alone=seed % 4 == 0, counts=of_known) is None, seed
    assert counts["spans_not_established"] < counts["kept"] / 5, counts


@pytest.mark.nightly
def test_generated_templates_at_length():
    end = time.monotonic() + 30 * 60
    for seed in count(1000):
        if time.monotonic() > end:
            break
        assert shown_failure(Case(seed), each_alone=seed % 4 == 0) is None, seed


@pytest.mark.parametrize("name", NAMES)
def test_templates_of_models_and_odd_ones(name: str):
    counts = Counter[str]()
    for seed in range(30 if LONG else 3):
        assert shown_failure(Case(seed, TEMPLATES[name]), folder=DEEPSEEK, counts=counts) is None, seed
    assert (counts["kept"] == 0) == (name in REFUSED), counts
