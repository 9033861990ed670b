"""chatmill verify: reads a whole dataset, and shows each fault, or OK."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pipeline.cli.console import CommandParser, show_phase
from transforms.base.errors import InputError
from transforms.base.phrases import counted

if TYPE_CHECKING:
    from transforms.audit.verification.row_check import Fault

_FAULTS_SHOWN = 50


def run(arguments: Sequence[str]) -> int:
    """Verify a dataset.

    Args:
        arguments: what follows the command.

    Returns:
        0 if it is sound, otherwise 1.

    Raises:
        UserError: if an option is wrong, or there is no dataset.
        StoreError: if the store of the dataset fails.
    """
    options = _parse(arguments)
    if options.replay:
        _check_replayable(options.dataset, options.trust_formatter)
    show_phase(f"reading {options.dataset}")
    from pipeline.viewing.view import visible
    from transforms.audit.verification.whole import verify

    found = verify(options.dataset)
    if options.replay and found.figures:
        from pipeline.viewing.replayed_records import replay
        from transforms.reading.reader import Dataset

        show_phase("replaying records")
        replayed = replay(Dataset(options.dataset), options.replay, options.trust_formatter)
        found.faults += replayed.faults
        found.notes += replayed.notes
        found.figures |= {"records_replayed": replayed.records}
    if options.json:
        print(json.dumps(dataclasses.asdict(found) | {"ok": not found.faults}, indent=2, ensure_ascii=False))
        return int(bool(found.faults))
    for fault in found.faults[:_FAULTS_SHOWN]:
        print(visible(line_of(fault)))
    if len(found.faults) > _FAULTS_SHOWN:
        print(f"and {len(found.faults) - _FAULTS_SHOWN:,} more, which --json lists")
    for note in found.notes:
        print(f"note: {note}")
    figures = ", ".join(_figure(value, name) for name, value in found.figures.items())
    result = counted(len(found.faults), "fault") if found.faults else "OK"
    print(f"{options.dataset}: {result} ({figures or 'nothing was read'})")
    return int(bool(found.faults))


def _figure(count: int, name: str) -> str:
    """A figure for people, such as `1 record replayed` for records_replayed."""
    words = name.replace("_", " ")
    return f"{count:,} {words if count != 1 else re.sub('s(?= |$)', '', words, count=1)}"


def line_of(fault: Fault) -> str:
    """Return a fault as one line for people."""
    if not fault.rows:
        return f"{fault.path}: {fault.problem}"
    first, *others = [f"{row:,}" for row in fault.rows]
    if fault.count == 1:
        return f"{fault.path}, row {first}: {fault.problem}"
    more = f"{', '.join(others)}{' and others' if fault.count > len(fault.rows) else ''}"
    return f"{fault.path}, row {first}: {fault.problem} ({fault.count:,} rows: also {more})"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The value of each option. Raises UserError."""
    parser = CommandParser(
        "verify",
        usage="OUT [...]",
        description="Read a whole dataset and check it: its files, its rows, and its manifest.",
        examples=["out/mine", "out/mine --replay 0.01", "gs://shards/mine --json"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    parser.add_argument(
        "--replay",
        metavar="FRACTION",
        type=_fraction,
        help="also process this fraction of the records again, from their sources, with transformers, and compare "
        "the result to the rows and rejects, such as 0.01 (default: none)",
    )
    parser.add_argument(
        "--trust_formatter",
        action="store_true",
        help="let --replay run the formatter that is stored in the dataset, which is code of its author",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with all faults")
    parser.set_defaults(replay=None, trust_formatter=False, json=False)
    return parser.parse_args(arguments)


def _check_replayable(url: str, trust_formatter: bool) -> None:
    """Raise UserError if a replay would be refused, before all of the dataset is read."""
    from pipeline.viewing.replayed_records import check_replayable
    from transforms.reading.reader import Dataset, Unfinished

    with suppress(InputError, Unfinished):  # which are faults that are shown
        check_replayable(Dataset(url), trust_formatter)


def _fraction(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0, up to 1")
    return float(text)


_fraction.__name__ = "fraction"  # argparse names it in its error
