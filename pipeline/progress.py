"""Progress: a line in a terminal, or one now and then elsewhere, read from the receipts beside the output."""

from __future__ import annotations

import sys
import threading
import time

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.job import Folder, Job
from transforms.files import join, names_below, read_bytes
from transforms.receipts import Receipt

_SECONDS_IN_TERMINAL = 0.5
_SECONDS_ELSEWHERE = 30.0


class ReportProgress:
    """While it is open, a thread tells how far the job has come. It works on any runner, since receipts are files."""

    def __init__(self, job: Job, folder: Folder):
        self._folder = folder
        self._splits = job.splits
        self._seen: set[str] = set()
        self._done = self._records = self._tokens = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReportProgress:
        self._read_receipts()
        self._began, self._tokens_before = time.monotonic(), self._tokens
        if self._done:
            print(f"chatmill: resuming, {self._done:,} of {self._splits:,} splits are done", file=sys.stderr)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        console = Console(stderr=True)
        if not console.is_terminal:
            while not self._stop.wait(_SECONDS_ELSEWHERE):
                self._read_receipts()
                print(
                    f"chatmill: {self._done:,} of {self._splits:,} splits, {self._facts()}", file=sys.stderr, flush=True
                )
            return
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("splits, {task.description}"), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting", total=self._splits, completed=self._done)
            while not self._stop.wait(_SECONDS_IN_TERMINAL):
                self._read_receipts()
                progress.update(task, completed=self._done, description=self._facts())

    def _facts(self) -> str:
        speed = (self._tokens - self._tokens_before) / max(time.monotonic() - self._began, 1e-9)
        return f"{self._records:,} records, {self._tokens:,} tokens, {speed:,.0f} tokens/s"

    def _read_receipts(self) -> None:
        for name in names_below(self._folder.receipts):
            if name in self._seen or not name.endswith(".json"):
                continue
            receipt = msgspec.json.decode(read_bytes(join(self._folder.receipts, name)), type=Receipt)
            self._seen.add(name)
            self._done += receipt.last
            self._records += receipt.read
            formats = {shard.format for shard in receipt.shards}
            self._tokens += sum(shard.tokens for shard in receipt.shards) // max(len(formats), 1)
