"""Traces of agents, read as a build reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.paths import ROOT
from support.reading import make_batches
from transforms import ParseConversations

TRACES = ROOT / "tests" / "data" / "traces"


def parsed(path: Path, format: str = "", **options: Any) -> Any:
    """Return the examples of a file of traces. format: if it is not the name of the file without the suffix."""
    [batch] = make_batches(str(path), ParseConversations(**options), input_format=format or path.stem)
    return batch
