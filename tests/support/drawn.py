"""How many examples a property draws."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

FEW = 10


def examples(number: int, **more: Any) -> settings:
    """Return the settings of a property that draws so many examples; with TEST_FAST=1 a few of them."""
    return settings(max_examples=min(number, FEW) if os.environ.get("TEST_FAST") else number, **more)
