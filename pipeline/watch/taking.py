"""Taking: files become increments, and it is found out which of them are to blame if that fails.

Nothing is tried for ever but what a store refuses, and no file is blamed for its neighbours or for the machine.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence

from pipeline.append import Appended
from pipeline.claims import claim_of, take
from pipeline.console import error_text
from pipeline.job import read_job
from pipeline.options import Options
from pipeline.plan import begin_increment, increment_of
from pipeline.watch.arrivals import Key
from transforms.dataset.increment_commit import commit_failed
from transforms.dataset.layout import Folder
from transforms.dataset.log import Log
from transforms.dataset.replacing import remove_published
from transforms.dataset.snapshot import Increment, Snapshot
from transforms.errors import InputError, RejectsError, Unavailable, UserError, WorkerDied
from transforms.inputs.listing import InputFile
from transforms.storage.files import full_url
from transforms.storage.writing import remove

# An error may be due to a file or to the machine: it is tried so often before it is the file's.
TRIES = 3


class Taking:
    """Appends files to a dataset.

    Args:
        options: of the build.
        append: as for Loop.
        is_stopped: whether to take no further files.
        have_changed: whether one of some files is not there any more as it was.
    """

    def __init__(
        self,
        options: Options,
        append: Callable[..., Appended],
        is_stopped: Callable[[], bool],
        have_changed: Callable[[Sequence[InputFile]], bool],
    ):
        self._options = options
        self._append_to = append
        self._is_stopped = is_stopped
        self._have_changed = have_changed
        self._folder = Folder(full_url(options.output))
        self._tries = 0

    def append(self, files: Sequence[InputFile], is_certain: bool = False) -> Iterator[Increment]:
        """Append files as one increment. If that fails because of them, append each half, down to those that fail.

        Args:
            files: that the dataset does not have.
            is_certain: whether an error is due to files, and not to the machine.

        Yields:
            Each increment that is committed, also one that failed. Files without one are to be looked at again.

        Raises:
            UserError: if the options cannot be met.
            Unavailable, OSError: if a store does not answer.
        """
        if self._is_stopped():
            return
        is_alone = is_certain and len(files) == 1
        try:
            appended = self._append_to(files=files, failed="commit" if is_alone else "raise")
        except Exception as error:
            if not may_be_due_to(files, error):
                raise
            if self._have_changed(files):
                return
            if is_alone:
                yield from self.blame(files[0], error_text(error))
            elif is_certain or isinstance(error, RejectsError) or self._has_failed_often(error):
                if len(files) > 1:
                    self._remove_attempt(files)
                middle = len(files) // 2
                for half in filter(None, (files[:middle], files[middle:])):
                    yield from self.append(half, is_certain=True)
        else:
            self._tries = 0
            yield from appended.increments

    def replace(self, files: Sequence[InputFile], others: Sequence[InputFile]) -> Iterator[Increment]:
        """Append files of which the dataset has other versions, in one increment, in the place of those.

        Args:
            files: of replaceable.
            others: all that the dataset has and that is there as it was.

        Yields:
            The increment.

        Raises:
            Exception: anything if it fails. The dataset keeps the versions that it has.
        """
        yield from self._append_to(files=[*others, *files]).increments

    def blame(self, file: InputFile, problem: str) -> Iterator[Increment]:
        """Commit that a file gives nothing, so that it is not tried for ever; if the dataset has begun.

        Args:
            file: that cannot be read.
            problem: why.

        Yields:
            The increment that failed.
        """
        dataset = read_job(self._folder)
        if dataset is None:
            return
        id, job = increment_of(dataset, [file])
        of_increment = Folder(self._folder.output, id)
        with claim_of(self._folder, self._options.output, self._options.no_lock) as claim:
            if claim:
                take(claim, job_has_ended=False, waits=True)
            begin_increment(of_increment, job, [file])
            snapshot = commit_failed(of_increment, problem, self._options.report)
        yield from (each for each in snapshot.increments if each.id == id)

    def _remove_attempt(self, files: Sequence[InputFile]) -> None:
        """Remove what is left of an increment of files that is not committed, and will not be."""
        dataset, snapshot = read_job(self._folder), Log(self._folder).newest()
        if dataset:
            attempt = Folder(self._folder.output, increment_of(dataset, files)[0])
            if not (snapshot and snapshot.has(attempt.increment)):
                remove_attempt(attempt)

    def _has_failed_often(self, error: Exception) -> bool:
        """Whether an error came as often as one that is due to a file."""
        self._tries = self._tries % TRIES + 1
        if not isinstance(error, (InputError, UserError, Unavailable)):
            traceback.print_exception(error)
        print(f"chatmill: warning: {error_text(error)} (try {self._tries} of {TRIES})", file=sys.stderr, flush=True)
        return self._tries == TRIES


def may_be_due_to(files: Sequence[InputFile], error: Exception) -> bool:
    """Return whether an error may come from one of some files, and not from a store or from the options."""
    if isinstance(error, UserError):
        return any(file.url in str(error) for file in files)
    return isinstance(error, WorkerDied) or not isinstance(error, (Unavailable, OSError))


def remove_attempt(folder: Folder) -> None:
    """Remove what is left of an increment that is not committed. folder: of the increment."""
    remove_published(folder, (folder.rejects, folder.ledger))
    remove(folder.work)


def replaceable(files: Sequence[InputFile], listed: Mapping[Key, str], snapshot: Snapshot) -> list[InputFile]:
    """Return those files that can take the place of their other versions.

    What was built together is built together again: all of it has to be there as it was, or be replaced, too.

    Args:
        files: of which the dataset has other versions.
        listed: the versions of all files that are there.
        snapshot: the newest one.
    """
    chosen = {file.key: file for file in files}
    while True:
        missing = set[Key]()
        for increment in snapshot.increments:
            of_it = {file.key: file.version for file in increment.inputs}
            if any(key not in chosen and listed.get(key) != version for key, version in of_it.items()):
                missing |= of_it.keys() & chosen.keys()
        if not missing:
            return list(chosen.values())
        for key in missing:
            del chosen[key]
