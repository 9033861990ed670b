"""Reports: what the last step has done, chunk by chunk, in small files that a launcher on the same machine reads.

A receipt says that a whole shard is there, which may take minutes. It is all that a launcher sees of workers elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from transforms.model.batches import Rows, Task
from transforms.model.chunks import CHUNK_BYTES
from transforms.model.counts import Counts

_PLACE = ".place"

_folder: ContextVar[str | None] = ContextVar("reports_folder", default=None)


class Done(Counts, frozen=True):
    """What is done.

    Attributes:
        work: about how many bytes of input; of receipts, how many tasks.
        records: how many were read.
        tokens: how many are in rows.
    """

    work: int = 0
    records: int = 0
    tokens: int = 0


@contextmanager
def progress_written_to(folder: str | None) -> Iterator[None]:
    """Let the last step that is applied inside report to a folder.

    Args:
        folder: its path on the machine of all workers; None for no reports, as outside.
    """
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


class ProgressWriter:
    """Reports the chunks that are done, and what is read, each process to files of its own.

    Make it while the pipeline is built, inside progress_written_to. It is pickled with the DoFn.
    """

    def __init__(self) -> None:
        self._folder = _folder.get()

    def write(self, chunk: Rows) -> None:
        """Report a chunk. A report that cannot be written is left out."""
        task, records = chunk.task, chunk.outcomes.read
        if self._folder is None or task.received:  # what is in a bucket was reported when it was sent
            return
        if task.sends_to:
            records += chunk.facts.records()
        tokens = len(chunk.train.ids) + len(chunk.validation.ids) + chunk.tokens_sent
        stop = task.bytes if chunk.last else _bytes_before(task, chunk.chunk + 1)
        with suppress(OSError), Path(self._folder, str(os.getpid())).open("a") as file:
            file.write(f"{stop - _bytes_before(task, chunk.chunk)} {records} {tokens}\n")

    def write_place(self, task: Task, place: str) -> None:
        """Write what this process reads, a file and where in it, for the launcher to report if the process dies."""
        if self._folder is not None:
            with suppress(OSError):
                Path(self._folder, f"{os.getpid()}{_PLACE}").write_text(f"task {task.number}, {place}")


def read_place(folder: str, process: int) -> str | None:
    """Return the place that a process wrote down last, None if it did not."""
    try:
        return Path(folder, f"{process}{_PLACE}").read_text() or None
    except OSError:
        return None


def _bytes_before(task: Task, chunk: int) -> int:
    """About how many bytes of a task are before a chunk."""
    return min(task.bytes, chunk * CHUNK_BYTES * task.bytes // max(task.unpacked_bytes, 1))


def read_progress(folder: str) -> Done:
    """Add up the reports in a folder."""
    files = (file for file in Path(folder).iterdir() if file.suffix != _PLACE)
    return Done.total(Done(*map(int, line.split())) for file in files for line in file.read_text().splitlines())
