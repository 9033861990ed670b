"""Deciding: what a watch builds next, one increment at a time, and which files are to blame if that fails.

A process (loop.py) and a stream (stream.py) do it. All that has to last is in the dataset: its log, the plan of the
increment that is being built, and what was tried of it. A process or a worker that begins knows nothing else, and goes
on with that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pipeline.cli.console import error_text
from pipeline.cli.options import Options
from pipeline.cli.sources import Source
from pipeline.growth.increments import select
from pipeline.job.increment_plan import begin_increment, increment_of
from pipeline.job.job_json import Job
from pipeline.watching.arrivals import Arrival, Arrivals, FoundFile, Key
from pipeline.watching.attempts import TRIES, Attempt, Attempts, may_be_due_to
from pipeline.watching.new_files import bytes_per_record, input_of
from pipeline.watching.settings import Settings
from pipeline.watching.wanted import Wanted, replaceable
from transforms.base.errors import RejectsError, UserError
from transforms.catalog.layout import Folder
from transforms.catalog.snapshot import Snapshot
from transforms.inputs.listing import InputFile
from transforms.inputs.plan_file import decode_plan
from transforms.inputs.splits import largest_first, splits_of
from transforms.model.batches import Split
from transforms.publish.derived import derive, is_stale
from transforms.publish.increment_commit import commit_failed, remove_files
from transforms.storage.files import exists, full_url, read_bytes
from transforms.storage.writing import remove, remove_if_empty


class Now(NamedTuple):
    """A look.

    found: what is listed. snapshot: the newest one. taken: of the same. job: of the dataset. run, tick: of the
    pipeline. time: in seconds.
    """

    found: Mapping[Key, FoundFile]
    snapshot: Snapshot
    taken: Mapping[Key, set[str]]
    job: Job
    run: str
    tick: int
    time: float

    def is_listed(self, file: InputFile) -> bool:
        """Return whether a file is there as it was."""
        found = self.found.get(file.key)
        return found is not None and found.version == file.version

    def is_taken(self, file: InputFile) -> bool:
        """Return whether the dataset has a file as it is."""
        return file.version in self.taken.get(file.key, ())


class Deciding:
    """Decides, look after look, what is built.

    Args:
        options: of the build.
        sources: of read_sources.
        settings: when files are taken.
        show: prints a line.
        note: is called when an increment was committed as failed, with its folder, the newest snapshot, and its last
            attempt, if there was one.
    """

    def __init__(
        self,
        options: Options,
        sources: Sequence[Source],
        settings: Settings,
        show: Callable[[str], None],
        note: Callable[[Folder, Snapshot, Attempt | None], None],
    ):
        self._options = options
        self._sources = sources
        self._show = show
        self._note = note
        self._folder = Folder(full_url(options.output))
        self._arrivals = Arrivals(settings.settle, settings.min_records, settings.max_delay)
        self._wanted = Wanted(options.rewritten, show)

    @property
    def waiting(self) -> int:
        """How many files are seen, and not taken."""
        return len(self._arrivals)

    def drop(self, files: Iterable[InputFile]) -> None:
        """Let files that were committed wait no longer, before the next look shows it."""
        self._arrivals.drop(files)

    def is_due(self, found: Mapping[Key, FoundFile], snapshot: Snapshot) -> bool:
        """Return whether files that are listed are worth an increment now. Nothing is read or written.

        Args:
            found: of find_arriving.
            snapshot: as it was read last.
        """
        return bool(self._see(found, snapshot, snapshot.taken(), time.time()))

    def look(
        self, found: Mapping[Key, FoundFile], snapshot: Snapshot, job: Job, run: str = "", tick: int = 0
    ) -> list[Split] | None:
        """Decide.

        Args:
            found: of find_arriving.
            snapshot: the newest one.
            job: of the dataset.
            run, tick: of the pipeline. Without them, what was begun is not being built any more.

        Returns:
            The splits to build now; none if there is nothing to do; None while an increment is being built.

        Raises:
            UserError, Unavailable, OSError: if a store does not answer.
        """
        if tick == 0 and is_stale(self._folder, snapshot):  # after a kill
            derive(self._folder, snapshot, self._options.report)
        now = Now(found, snapshot, snapshot.taken(), job, run, tick, time.time())
        files = self._begun(now)
        due = self._see(found, snapshot, now.taken, now.time)
        since = now.time
        if not files:
            files = self._due(due, now)
            since = min((arrival.since for arrival in due), default=now.time)
        return self._go_on(files, now, since) if files else []

    def _see(
        self, found: Mapping[Key, FoundFile], snapshot: Snapshot, taken: Mapping[Key, set[str]], now: float
    ) -> list[Arrival]:
        """Take note of a listing. Returns the files that are due."""
        self._arrivals.look({key: file for key, file in found.items() if self._wanted.has(file, taken)}, now)
        return self._arrivals.due(now, bytes_per_record(snapshot))

    def _begun(self, now: Now) -> list[InputFile]:
        """The files of the increment that was begun and is not committed, the largest one: others are its halves."""
        largest: list[InputFile] = []
        for id in self._folder.begun():
            folder = Folder(self._folder.output, id)
            files = decode_plan(read_bytes(folder.plan)) if exists(folder.plan) else []
            if now.snapshot.has(id) or all(now.is_taken(file) for file in files):
                remove(folder.work)
            elif not self._is_valid(files, now, folder):
                remove_files(folder)
                remove(folder.work)
            elif Attempts(folder).is_broken() and self._replaces(files, now.snapshot):
                self._leave_out(files, now, error_text(Attempts(folder).why_broken()))
            elif len(files) > len(largest):
                largest = files
        remove_if_empty(self._folder.increments)
        return largest

    def _is_valid(self, files: Sequence[InputFile], now: Now, folder: Folder) -> bool:
        """Whether an increment would be built as it was begun."""
        if not all(map(now.is_listed, files)) or increment_of(now.job, files)[0] != folder.increment:
            return False
        try:
            selected = select(files, now.snapshot, self._options.rewritten, self._sources)
        except UserError:
            return False
        return selected.files == files or Attempts(folder).is_broken()

    def _replaces(self, files: Sequence[InputFile], snapshot: Snapshot) -> tuple[str, ...]:
        return select(files, snapshot, self._options.rewritten, self._sources).replaces

    def _leave_out(self, files: Sequence[InputFile], now: Now, problem: str) -> None:
        """Keep what the dataset has of files that could not be replaced."""
        for file in files:
            if not now.is_taken(file):
                found = now.found[file.key]
                self._wanted.leave_out(found, f"the dataset keeps its earlier version: {problem}")

    def _due(self, due: Sequence[Arrival], now: Now) -> list[InputFile]:
        """The files of the next increment: those that are due, or what replaces some that were rewritten."""
        new, rewritten = [], []
        for arrival in due:
            file, problem = input_of(arrival.file, self._sources[arrival.file.source])
            if file and problem:
                self._fail([file], now, problem)
            elif file and self._options.rewritten == "replace" and arrival.file.key in now.taken:
                rewritten.append(file)
            elif file:
                new.append(file)
        listed = {key: file.version for key, file in now.found.items()}
        ready = replaceable(rewritten, listed, now.snapshot)
        since = {arrival.file.key: arrival.since for arrival in due}
        # Oldest first: if new files come all the time, others would wait for ever.
        if not ready or (new and min(since[file.key] for file in new) <= min(since[file.key] for file in ready)):
            return new
        others = [file for each in now.snapshot.increments for file in each.inputs if now.is_listed(file)]
        try:
            return select([*others, *ready], now.snapshot, "replace", self._sources).files
        except UserError as error:
            self._leave_out(ready, now, error_text(error))
            return []

    def _go_on(self, files: list[InputFile], now: Now, since: float) -> list[Split] | None:
        """Build files as one increment, or, if that is broken, one half and then the other.

        Args:
            files: of the increment.
            now: of this look.
            since: when the first of its files was seen.

        Returns:
            As look does.
        """
        id, job = increment_of(now.job, files)
        folder = Folder(self._folder.output, id)
        attempts = Attempts(folder)
        last = attempts.last()
        since = last.since if last else since
        if last and not attempts.is_broken():
            if attempts.is_running(now.run, now.tick, job.splits):
                return None
            self._try_again_or_break(files, attempts)
        if attempts.is_broken():
            return self._go_on_without(files, folder, now, since)
        begin_increment(folder, job, files)
        others = self.waiting - sum(file.key in self._arrivals for file in files)
        attempts.begin(now.run, now.tick, since, others)
        return largest_first(splits_of(files, job.split_bytes, id))

    def _try_again_or_break(self, files: Sequence[InputFile], attempts: Attempts) -> None:
        """Decide whether an increment whose last attempt is over is worth another one. If not, it is broken."""
        error = attempts.error()
        if not may_be_due_to(files, error):
            self._show(f"waiting: {error_text(error)}")
            attempts.forget_last()
            return
        tries, is_certain = attempts.without_progress(), isinstance(error, RejectsError)
        if tries and not is_certain:
            self._show(f"warning: {error_text(error)} (try {tries} of {TRIES})")
        if tries >= TRIES or is_certain:
            attempts.break_off(error)

    def _go_on_without(self, files: list[InputFile], folder: Folder, now: Now, since: float) -> list[Split] | None:
        """Build one half of a broken increment, and then the other, down to the files that are to blame."""
        problem = error_text(Attempts(folder).why_broken())
        if self._replaces(files, now.snapshot):
            self._leave_out(files, now, problem)
            return []
        if len(files) == 1:
            self._fail(files, now, problem)
            return []
        remove_files(folder)
        middle = len(files) // 2
        left = next(half for half in (files[:middle], files[middle:]) if not all(map(now.is_taken, half)))
        return self._go_on(left, now, since)

    def _fail(self, files: Sequence[InputFile], now: Now, problem: str) -> None:
        """Commit that files give nothing, so that they are not tried for ever."""
        id, job = increment_of(now.job, files)
        folder = Folder(self._folder.output, id)
        begin_increment(folder, job, files)
        last = Attempts(folder).last()
        self._note(folder, commit_failed(folder, problem, self._options.report, now.snapshot.version), last)
