"""Generated templates and conversations: both engines and transformers agree. `support.fuzz` runs for longer."""

from __future__ import annotations

import pytest

from support.fuzz import Case, failure_of


@pytest.mark.parametrize("seed", range(11))
def test_engines_and_transformers_agree_on_generated_templates(seed: int):
    case = Case(seed)
    assert failure_of(case.features, case.options, case.records) is None
