"""How much a run tests: as much as the lane has time for (tests/run.sh)."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

# With TEST_FAST=1 each property draws a few examples, and of each test a few parameters run. With TEST_SLOW=1 other
# examples are drawn in each run, and ten times as many.
IS_FAST, AT_LENGTH = "TEST_FAST" in os.environ, "TEST_SLOW" in os.environ
FEW_EXAMPLES, FEW_PARAMETERS = 10, 4


def examples(number: int, at_length: int | None = None, **more: Any) -> settings:
    """Return the settings of a property that draws so many examples.

    at_length: how many with TEST_SLOW=1, if not ten times as many.
    """
    if AT_LENGTH:
        number = at_length or 10 * number
    return settings(max_examples=min(number, FEW_EXAMPLES) if IS_FAST else number, **more)
