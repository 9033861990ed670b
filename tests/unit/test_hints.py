"""Hints: each is for a reason that there is, and names options and pages that there are."""

from __future__ import annotations

import re

import pytest

from pipeline.config import Options, option_name
from pipeline.show.hints import HINTS, hints
from support.paths import ROOT

REASONS = (ROOT / "docs" / "records.md").read_text().partition("## Why records are rejected")[2]
OPTIONS = {option_name(name) for name in Options.__dataclass_fields__}


@pytest.mark.parametrize("reason", HINTS)
def test_a_hint_is_for_a_documented_reason_and_names_options_and_pages_that_exist(reason):
    assert f"`{reason}`" in REASONS
    [line] = hints([reason])
    assert {*re.findall(r"--(\w+)", line)} <= OPTIONS
    pages = re.findall(r"docs/\w+\.md", line)
    assert len(pages) == 1 and (ROOT / pages[0]).exists()


def test_a_reason_of_which_its_detail_says_all_has_no_hint():
    assert hints(["invalid_json"]) == []
