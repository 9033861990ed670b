"""Phrases, as people read them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as `1 record`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def describe_largest(counts: Mapping[str, int], shown: int = 2) -> str:
    """The largest counts by name, such as `tools 12, kwargs 3 and 2 more`."""
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{name} {count:,}" for name, count in largest[:shown])
    return text if len(counts) <= shown else f"{text} and {len(counts) - shown} more"


def did_you_mean(name: Any, names: Collection[str]) -> str:
    """A question after the name that is closest to a mistyped one; empty if none is close."""
    close = difflib.get_close_matches(str(name), names, n=1)
    return f" Did you mean {close[0]}?" if close else ""
