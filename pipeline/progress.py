"""Progress: a progress bar in a terminal, otherwise a line now and then.

It comes from what workers on this machine report of each chunk, or from the receipts next to the output.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from pipeline.cli.console import show, show_phase
from pipeline.job import Job
from transforms.dataset.layout import Folder
from transforms.model.receipts import parse_receipt_name, read_receipt
from transforms.steps.reports import Done, read_progress
from transforms.storage.files import join
from transforms.storage.walking import names_below

_BAR_WIDTH = 16
_SECONDS_IN_TERMINAL = 0.5
_SECONDS_TO_FIRST_LINE = 10.0
_SECONDS_ELSEWHERE = 30.0
# Reading receipts may take this share of the time: in a bucket, listing a million of them takes minutes.
_TIME_SHARE = 0.02
_READERS = 16
# Bytes of input from which on a log has a line before the first progress.
_WORTH_A_LINE = 8 << 20


def show_plan(job: Job) -> None:
    """Print how large a job is, before it runs: in a terminal, and of a job that takes longer also elsewhere."""
    plan = f"{decimal(job.input_bytes)} of input in {job.tasks:,} task{'s' * (job.tasks != 1)}"
    (show_phase if job.input_bytes < _WORTH_A_LINE else show)(plan)


class ReportProgress:
    """A context in which a thread reports the job's progress.

    Args:
        job: what is built.
        folder: of the increment.
        reports: the folder to which workers on this machine report each chunk; None if the receipts say what is done.
    """

    def __init__(self, job: Job, folder: Folder, reports: str | None = None):
        self._tasks, self._bytes = job.tasks, job.input_bytes
        self._folder = folder
        self._reports = reports
        self._seen: set[str] = set()
        self._done = Done()
        self._tokens_before = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReportProgress:
        self._before = set(names_below(self._folder.receipts))
        if begun := len({numbers[0] for name in self._before if (numbers := parse_receipt_name(name))}):
            show(f"resuming: {begun:,} of {self._tasks:,} tasks were finished or begun before.")
            self._bytes -= self._bytes * begun // self._tasks  # reports are of what is done now
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_SECONDS_ELSEWHERE)

    def _run(self) -> None:
        console = Console(stderr=True)
        if not console.is_terminal:
            for sums in self._looks(_SECONDS_TO_FIRST_LINE, _SECONDS_ELSEWHERE):
                show(sums)
            return
        sums_column = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = (BarColumn(_BAR_WIDTH), TimeElapsedColumn(), TimeRemainingColumn(), sums_column)
        with Progress(*columns, console=console, transient=True, expand=True) as bar:
            task = bar.add_task("starting", total=self._bytes if self._reports else self._tasks)
            for sums in self._looks(_SECONDS_IN_TERMINAL, _SECONDS_IN_TERMINAL):
                bar.update(task, completed=self._done.work, description=sums)

    def _looks(self, seconds: float, others: float) -> Iterator[str]:
        """Say what is done, after some seconds and again after others, until the end. If the store fails, it waits."""
        while not self._stop.wait(seconds):
            began = time.monotonic()
            with suppress(OSError):
                if self._reports:
                    self._done = read_progress(self._reports)
                else:
                    self._read_receipts()
            seconds = max(others, (time.monotonic() - began) / _TIME_SHARE)
            yield self._sums()

    def _sums(self) -> str:
        """What is done of what, and how fast."""
        done = f"{self._done.work:,} of {self._tasks:,} tasks"
        if self._reports:
            done = f"{decimal(self._done.work)} of {decimal(self._bytes)}"
        records, tokens = self._done.records, self._done.tokens
        speed = (tokens - self._tokens_before) / max(time.monotonic() - self._began, 1e-9)
        return f"{done}, {records:,} records, {tokens:,} tokens, {speed:,.0f} tokens/s"

    def _read_receipts(self) -> None:
        """Add up the receipts that are new. One that is damaged does not count: its task is done again."""
        with ThreadPoolExecutor(_READERS) as pool:
            new = [
                name
                for name in names_below(self._folder.receipts)
                if name not in self._seen and parse_receipt_name(name)
            ]
            for start in range(0, len(new), _READERS):
                if self._stop.is_set():
                    break
                batch = new[start : start + _READERS]
                for name, done in zip(batch, pool.map(self._read_receipt, batch), strict=True):
                    if done:
                        self._seen.add(name)
                        self._done += done
                        self._tokens_before += done.tokens if name in self._before else 0

    def _read_receipt(self, name: str) -> Done | None:
        with suppress(ValueError):
            receipt = read_receipt(join(self._folder.receipts, name), self._folder.increment)
            totals = receipt.sums().totals()
            return Done(int(receipt.last), totals.records.read, totals.tokens)
        return None
