"""Progress: a progress bar in a terminal, otherwise a line now and then.

It comes from what workers on this machine report of each chunk, or from the receipts next to the output.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from pipeline.cli.console import show_phase
from pipeline.job.job_json import Job
from transforms.dataset.layout import Folder
from transforms.model.receipts import numbers_of, read_receipt
from transforms.steps.reports import read_reports
from transforms.storage.files import join
from transforms.storage.walking import names_below

_BAR_WIDTH = 16
_SECONDS_IN_TERMINAL = 0.5
_SECONDS_TO_FIRST_LINE = 10.0
_SECONDS_ELSEWHERE = 30.0
# Reading receipts may take this share of the time: in a bucket, listing a million of them takes minutes.
_SHARE_OF_TIME = 0.02
_READERS = 16
# Bytes of input from which on a log has a line before the first progress.
_WORTH_A_LINE = 8 << 20


def show_plan(job: Job) -> None:
    """Print how large a job is, before it runs: in a terminal, and of a job that takes longer also elsewhere."""
    plan = f"{decimal(job.input_bytes)} of input in {job.tasks:,} task{'s' * (job.tasks != 1)}"
    if job.input_bytes < _WORTH_A_LINE:
        show_phase(plan)
    else:
        print(f"chatmill: {plan}", file=sys.stderr, flush=True)


class Counts(NamedTuple):
    """What a receipt says: how many units it completes, how many records were read, and how many tokens are in rows."""

    units: int
    records: int
    tokens: int


@dataclass(frozen=True)
class Expected:
    """What a job is to do, and what its receipts say of it, on any runner.

    Attributes:
        units: of work, each of which has one receipt or several.
        bytes: of its input.
        receipts: the url of their folder.
        unit_of: the unit of a receipt, from its name; empty if the file is another one.
        read: a receipt, from its name; None if it is damaged, so that its unit is done again.
    """

    units: int
    bytes: int
    receipts: str
    unit_of: Callable[[str], str]
    read: Callable[[str], Counts | None]


def expected_of(job: Job, folder: Folder) -> Expected:
    """Return what a build is to do. folder: of the increment."""

    def read(name: str) -> Counts | None:
        with suppress(ValueError):
            receipt = read_receipt(join(folder.receipts, name), folder.increment)
            totals = receipt.sums().totals()
            return Counts(receipt.last, totals.records.read, totals.tokens)
        return None

    def unit_of(name: str) -> str:
        return name.partition("-")[0] if numbers_of(name) else ""

    return Expected(job.tasks, job.input_bytes, folder.receipts, unit_of, read)


class ReportProgress:
    """A context in which a thread reports the job's progress.

    Args:
        expected: what the job is to do.
        reports: the folder to which workers on this machine report each chunk; None if the receipts say what is done.
    """

    def __init__(self, expected: Expected, reports: str | None = None):
        self._expected = expected
        self._reports = reports
        self._bytes = expected.bytes
        self._seen: set[str] = set()
        self._before: set[str] = set()
        self._done = self._records = self._tokens = self._tokens_before = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReportProgress:
        expected = self._expected
        self._before = set(names_below(expected.receipts))
        if begun := set(filter(None, map(expected.unit_of, self._before))):
            print(
                f"chatmill: resuming: {len(begun):,} of {expected.units:,} tasks were finished or begun before.",
                file=sys.stderr,
            )
            self._bytes -= self._bytes * len(begun) // expected.units  # reports are of what is done now
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_SECONDS_ELSEWHERE)

    def _run(self) -> None:
        console = Console(stderr=True)
        if not console.is_terminal:
            seconds = _SECONDS_TO_FIRST_LINE
            while not self._stop.wait(seconds):
                seconds = max(_SECONDS_ELSEWHERE, self._read() / _SHARE_OF_TIME)
                print(f"chatmill: {self._sums()}", file=sys.stderr, flush=True)
            return
        sums = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = (BarColumn(_BAR_WIDTH), TimeElapsedColumn(), TimeRemainingColumn(), sums)
        with Progress(*columns, console=console, transient=True, expand=True) as progress:
            task = progress.add_task("starting", total=self._bytes if self._reports else self._expected.units)
            seconds = _SECONDS_IN_TERMINAL
            while not self._stop.wait(seconds):
                seconds = max(_SECONDS_IN_TERMINAL, self._read() / _SHARE_OF_TIME)
                progress.update(task, completed=self._done, description=self._sums())

    def _sums(self) -> str:
        """What is done of what, and how fast."""
        expected = self._expected
        done = f"{self._done:,} of {expected.units:,} tasks"
        if self._reports:
            done = f"{decimal(self._done)} of {decimal(self._bytes)}"
        speed = (self._tokens - self._tokens_before) / max(time.monotonic() - self._began, 1e-9)
        return f"{done}, {self._records:,} records, {self._tokens:,} tokens, {speed:,.0f} tokens/s"

    def _read(self) -> float:
        """Read what is done. Returns the seconds it took. If the store fails, the next call retries."""
        began = time.monotonic()
        with suppress(OSError):
            if self._reports:
                self._done, self._records, self._tokens = read_reports(self._reports)
            else:
                self._read_receipts()
        return time.monotonic() - began

    def _read_receipts(self) -> None:
        """Add up the receipts that are new."""
        with ThreadPoolExecutor(_READERS) as pool:
            names = names_below(self._expected.receipts)
            new = [name for name in names if name not in self._seen and self._expected.unit_of(name)]
            for start in range(0, len(new), _READERS):
                if self._stop.is_set():
                    break
                batch = new[start : start + _READERS]
                for name, counts in zip(batch, pool.map(self._expected.read, batch), strict=True):
                    if counts:
                        self._add(name, counts)

    def _add(self, name: str, counts: Counts) -> None:
        self._seen.add(name)
        self._done += counts.units
        self._records += counts.records
        self._tokens += counts.tokens
        self._tokens_before += counts.tokens if name in self._before else 0
