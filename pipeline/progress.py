"""Progress: a progress bar in a terminal, otherwise a line now and then, from the receipts next to the output."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pipeline.console import show_phase
from pipeline.job import Job
from transforms.dataset.layout import Folder
from transforms.model.receipts import Receipt
from transforms.storage.files import join, names_below, read_bytes

_SECONDS_IN_TERMINAL = 0.5
_SECONDS_ELSEWHERE = 30.0
# Reading receipts may take this share of the time: in a bucket, listing a million of them takes minutes.
_SHARE_OF_TIME = 0.1
_READERS = 16
# Bytes of input from which on a log has a line before the first progress.
_WORTH_A_LINE = 8 << 20


def show_plan(job: Job) -> None:
    """Print how large a job is, before it runs: in a terminal, and of a job that takes longer also elsewhere."""
    plan = f"{decimal(job.input_bytes)} of input in {job.splits:,} split{'s' * (job.splits != 1)}"
    if job.input_bytes < _WORTH_A_LINE:
        show_phase(plan)
    else:
        print(f"chatmill: {plan}", file=sys.stderr, flush=True)


class ReportProgress:
    """A context in which a thread reports the job's progress. It works on any runner, since receipts are files."""

    def __init__(self, job: Job, folder: Folder):
        self._folder = folder
        self._splits = job.splits
        self._seen: set[str] = set()
        self._before: set[str] = set()
        self._done = self._records = self._tokens = self._tokens_before = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReportProgress:
        self._before = set(names_below(self._folder.receipts))
        if begun := {name.partition("-")[0] for name in self._before}:
            print(
                f"chatmill: resuming: {len(begun):,} of {self._splits:,} splits were finished or begun before.",
                file=sys.stderr,
            )
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_SECONDS_ELSEWHERE)

    def _run(self) -> None:
        console = Console(stderr=True)
        if not console.is_terminal:
            seconds = 0.0
            while not self._stop.wait(max(_SECONDS_ELSEWHERE, seconds / _SHARE_OF_TIME)):
                seconds = self._read_receipts()
                print(
                    f"chatmill: {self._done:,} of {self._splits:,} splits, {self._sums()}", file=sys.stderr, flush=True
                )
            return
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("splits, {task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting", total=self._splits, completed=self._done)
            seconds = 0.0
            while not self._stop.wait(max(_SECONDS_IN_TERMINAL, seconds / _SHARE_OF_TIME)):
                seconds = self._read_receipts()
                progress.update(task, completed=self._done, description=self._sums())

    def _sums(self) -> str:
        speed = (self._tokens - self._tokens_before) / max(time.monotonic() - self._began, 1e-9)
        return f"{self._records:,} records, {self._tokens:,} tokens, {speed:,.0f} tokens/s"

    def _read_receipts(self) -> float:
        """Add up the receipts that are new. Returns the seconds it took. If the store fails, the next call retries."""
        began = time.monotonic()
        with suppress(OSError), ThreadPoolExecutor(_READERS) as pool:
            names = [name for name in names_below(self._folder.receipts) if name.endswith(".json")]
            new = [name for name in names if name not in self._seen]
            for start in range(0, len(new), _READERS):
                if self._stop.is_set():
                    break
                batch = new[start : start + _READERS]
                for name, receipt in zip(batch, pool.map(self._read, batch), strict=True):
                    self._add(name, receipt)
        return time.monotonic() - began

    def _read(self, name: str) -> Receipt:
        return msgspec.json.decode(read_bytes(join(self._folder.receipts, name)), type=Receipt)

    def _add(self, name: str, receipt: Receipt) -> None:
        self._seen.add(name)
        self._done += receipt.last
        self._records += receipt.read
        tokens = sum(shard.tokens for shard in receipt.shards_once())
        self._tokens += tokens
        self._tokens_before += tokens if name in self._before else 0
