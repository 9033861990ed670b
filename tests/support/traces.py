"""Traces of agents, read as a build reads them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from support.paths import ROOT
from transforms import Examples, Slice, Split
from transforms.inputs.formats import MAX_RECORD_BYTES, input_format
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes, Reject
from transforms.steps.parse import Parser

TRACES = ROOT / "tests" / "data" / "traces"


def sessions_of(
    format: str, content: bytes, max_record_bytes: int = MAX_RECORD_BYTES
) -> tuple[list[Record], list[Reject]]:
    """Return the records and the rejects of a file of traces."""
    parts = [*input_format(format).read(BytesIO(content), 0, None, 1 << 20, max_record_bytes)]
    return [each for part in parts for each in part.records], [each for part in parts for each in part.rejects]


def parsed(path: Path, **options: Any) -> Examples:
    """Return the examples of a file of traces, whose format is its name without the suffix."""
    records, rejects = sessions_of(path.stem, path.read_bytes())
    split = Split(0, (Slice(str(path), path.stem, None, 0, path.stat().st_size),))
    outcomes = Outcomes(read=len(records) + len(rejects), rejects=tuple(rejects))
    return Parser(**options)(Records(split=split, part=0, last=True, outcomes=outcomes, records=records))
