"""Attempts: a log of what was tried for an increment, in files of its work folder, which survives restarts.

A worker that dies leaves no error, and a runner tries again for ever. An increment that is begun again and again
without one more receipt is broken: then its files are to blame, and each half of them becomes an increment of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from transforms.base.errors import Unavailable, UserError, WorkerDied
from transforms.catalog.layout import Folder
from transforms.inputs.listing import InputFile
from transforms.model.receipts import numbers_of
from transforms.steps.failures import read_failure, write_failure
from transforms.storage.files import exists, join, read_bytes
from transforms.storage.walking import names_below
from transforms.storage.writing import remove, write_atomically

# An error may be due to a file or to the machine: after this many attempts it is due to the files of the increment.
TRIES = 3

_COMMIT = "commit.json"


class Attempt(msgspec.Struct, frozen=True):
    """An attempt to build an increment.

    run, tick: when it began. receipts: how many there were then. since: the time when the first of its files was seen.
    waiting: how many other files waited.
    """

    run: str
    tick: int
    receipts: int
    since: float
    waiting: int


_decode = msgspec.json.Decoder(Attempt).decode


class Attempts:
    """The attempts at an increment.

    Args:
        folder: of the increment.
    """

    def __init__(self, folder: Folder):
        self._folder = folder
        self._attempts = join(folder.work, "attempts")
        self._broken = join(folder.work, "broken.json")

    def begin(self, run: str, tick: int, since: float, waiting: int) -> None:
        """Write down that an attempt begins. Errors of earlier ones do not count any more."""
        remove(self._folder.failures)
        attempt = Attempt(run, tick, self._receipts(), since, waiting)
        write_atomically(join(self._attempts, f"{len(self._names()):05d}.json"), msgspec.json.encode(attempt))

    def forget_last(self) -> None:
        """Let the last attempt count for nothing."""
        for name in self._names()[-1:]:
            remove(join(self._attempts, name))

    def last(self) -> Attempt | None:
        """Return the last attempt; None if there was none."""
        return next(self._latest_first(), None)

    def is_running(self, run: str, tick: int, splits: int) -> bool:
        """Return whether an attempt goes on.

        Args:
            run, tick: now. An attempt of another run is over, and one of a later tick, to which the runner went back.
            splits: of the increment. When each has a receipt or an error, and there is an error, it is over.
        """
        last = self.last()
        if last is None or last.run != run or last.tick >= tick:
            return False
        failed = set(names_below(self._folder.failures))
        written = {f"{numbers[0]:07d}.json" for name in self._receipt_names() if (numbers := numbers_of(name))}
        return not failed or (_COMMIT not in failed and len(failed | written) < splits)

    def without_progress(self) -> int:
        """Return how many of the last attempts gave no receipt."""
        receipts, count = self._receipts(), 0
        for attempt in self._latest_first():
            if attempt.receipts != receipts:
                break
            count += 1
        return count

    def error(self) -> Exception:
        """Return the error of an attempt that is over; WorkerDied if it left none."""
        if names := names_below(self._folder.failures):
            name = _COMMIT if _COMMIT in names else names[0]
            return read_failure(join(self._folder.failures, name))
        return WorkerDied("the worker, or the job, ended while it was built")

    def fail(self, split: int | None, error: Exception) -> None:
        """Write down an error, unless the increment was committed or given up meanwhile, and its folder removed.

        Args:
            split: the number of the split; None for the commit, or for all of them.
            error: of it.
        """
        name = _COMMIT if split is None else f"{split:07d}.json"
        try:
            if exists(self._folder.plan):
                write_failure(join(self._folder.failures, name), error)
        except OSError:
            if exists(self._folder.plan):
                raise

    def break_off(self, error: Exception) -> None:
        """Write down that the increment is broken, and why."""
        write_failure(self._broken, error)

    def is_broken(self) -> bool:
        """Return whether the increment is not tried again."""
        return exists(self._broken)

    def why_broken(self) -> Exception:
        """Return why it is broken."""
        return read_failure(self._broken)

    def _names(self) -> list[str]:
        return names_below(self._attempts)

    def _latest_first(self) -> Iterator[Attempt]:
        for name in reversed(self._names()):
            yield _decode(read_bytes(join(self._attempts, name)))

    def _receipt_names(self) -> list[str]:
        return names_below(self._folder.receipts)

    def _receipts(self) -> int:
        return len(self._receipt_names())


def may_be_due_to(files: Sequence[InputFile], error: Exception) -> bool:
    """Return whether an error may come from one of some files, and not from a store or from the options."""
    if isinstance(error, UserError):
        return any(file.url in str(error) for file in files)
    return isinstance(error, WorkerDied) or not isinstance(error, (Unavailable, OSError))
