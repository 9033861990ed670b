"""The loop of `chatmill watch` in one process: what has arrived and settled is appended, again and again.

A process that is killed leaves an increment, and what was tried of it, with which the next one goes on.
"""

from __future__ import annotations

import functools
import gc
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pipeline.cli.claims import claim_of, take
from pipeline.cli.console import error_text, show
from pipeline.cli.options import Options
from pipeline.cli.sources import Source, with_all_inputs
from pipeline.cli.summary_json import check_summary_json, write_summary_json
from pipeline.growth.append import is_unclean
from pipeline.growth.increments import select
from pipeline.job.increment_plan import increment_of
from pipeline.job.job_json import Job, job_of
from pipeline.job.pinning import check_appendable, pin
from pipeline.job.run import parse_beam_options, run_job
from pipeline.local.fork_server import ForkServer
from pipeline.watching.arrivals import FoundFile, Key
from pipeline.watching.attempts import Attempt, Attempts, may_be_due_to
from pipeline.watching.deciding import Deciding
from pipeline.watching.figures import Figures, summary_of
from pipeline.watching.new_files import find_arriving
from pipeline.watching.settings import Settings
from pipeline.watching.stop import Stop
from transforms.base.errors import InputError, StoreError, Unavailable, UserError
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Snapshot
from transforms.inputs.listing import InputFile
from transforms.inputs.plan_file import decode_plan
from transforms.publish.increment_commit import Change
from transforms.storage.claim import Claim
from transforms.storage.files import full_url, read_bytes
from transforms.storage.writing import remove_attempts


class Loop:
    """Appends what arrives to a dataset.

    Args:
        options: of the build.
        sources: of read_sources.
        beam_flags: options of Beam, as arguments.
        server: forks the workers, if this process cannot.
        settings: when files are taken.
    """

    def __init__(
        self,
        options: Options,
        sources: Sequence[Source],
        beam_flags: Sequence[str],
        server: ForkServer | None,
        settings: Settings,
    ):
        self._options = options
        self._sources = sources
        self._beam_flags = beam_flags
        self._server = server
        self._settings = settings
        self._stop = Stop()
        self._deciding = Deciding(options, sources, settings, show, self._note)
        self._folder = Folder(full_url(options.output))
        self._figures = Figures()
        self._log = Log(self._folder)
        self._has_begun = False
        self._job: Job | None = None
        self._snapshot = Snapshot()
        # Whether there may be something to go on with, although nothing is due.
        self._is_unfinished = False
        # Writes down how the last attempt ended, if the store did not answer then.
        self._end_attempt: Callable[[], None] | None = None
        self._waits_since: float | None = None

    def run(self) -> None:
        """Look and append until SIGTERM or Ctrl-C.

        Raises:
            UserError: if the options cannot be met.
        """
        if url := self._options.summary_json:
            check_summary_json(self._summary("watching"), url, self._folder.output)
        try:
            with self._stop:
                while not self._stop.is_asked:
                    began = time.monotonic()
                    if not self._look_or_wait():
                        self._stop.wait(began + self._settings.every - time.monotonic())
        except BaseException as error:
            self._write_summary("failed", error_text(error))
            raise
        self._write_summary("stopped")
        show(f"stopped; {self._figures.line()}")

    def _look_or_wait(self) -> bool:
        """Look. If a store does not answer, say so once, and once when it answers again. Returns as _look does."""
        try:
            looks_again = self._look()
        except (Unavailable, OSError) as error:
            is_transient = isinstance(error, Unavailable) or (isinstance(error, StoreError) and error.is_transient)
            if not is_transient and not self._figures.increments:
                raise
            if self._waits_since is None:
                self._waits_since = time.monotonic()
                show(f"waiting: {error_text(error)}")
            return False
        if self._waits_since is not None:
            show(f"going on after {time.monotonic() - self._waits_since:,.0f} s")
            self._waits_since = None
        return looks_again

    def _look(self) -> bool:
        """List what is there, and take what is due. Returns whether to look again at once."""
        if not self._has_begun:
            self._begin()
        found = find_arriving(self._sources)
        is_due = self._deciding.is_due(found, self._snapshot)
        if self._stop.is_asked:
            return False
        looks_again = False
        if is_due or self._is_unfinished:
            try:
                looks_again = self._take(found)
            finally:
                gc.collect()  # a graph is full of cycles, and holds what it read
        return looks_again

    def _begin(self) -> None:
        """Check that the dataset can be appended to, and whether one that was killed left something."""
        self._snapshot = check_appendable(self._folder, self._options, self._sources)
        self._is_unfinished = is_unclean(self._folder, self._snapshot)
        self._has_begun = True

    def _take(self, found: Mapping[Key, FoundFile]) -> bool:
        """Build the next increment, while the output is claimed. Returns whether to look again at once."""
        with claim_of(self._folder.claims, self._options.output) as claim:
            if take(claim, job_has_ended=False, waits=True):
                found = find_arriving(self._sources)
            self._snapshot = check_appendable(self._folder, self._options, self._sources)
            if self._is_unfinished:
                remove_attempts(self._folder.output)
            if self._end_attempt:
                self._end_attempt()
                self._end_attempt = None
            self._is_unfinished = True
            before = self._snapshot.version
            if self._job is None or (before and self._job != job_of(self._folder, self._snapshot)):
                self._job = self._pinned([])
            splits = self._deciding.look(found, self._snapshot, self._job)
            looks_again = not splits or self._build(self._job, splits[0].increment, claim)
            did_something = bool(splits) or self._snapshot.version != before
            self._is_unfinished = did_something and bool(self._folder.begun())
            return self._is_unfinished and looks_again

    def _pinned(self, new: Sequence[InputFile]) -> Job:
        return pin(self._options, self._sources, new, self._server, self._folder, self._snapshot)

    def _build(self, job: Job, id: str, claim: Claim) -> bool:
        """Build the increment of an id. job: of the dataset. Returns whether to look again at once."""
        folder = Folder(self._folder.output, id)
        files = decode_plan(read_bytes(folder.plan))
        attempts = Attempts(folder)
        attempt = attempts.last()
        replaces = select(files, self._snapshot, self._options.rewritten, self._sources).replaces
        for_runner = with_all_inputs(self._options, self._sources)
        is_alone = len(files) == 1
        try:
            if not self._snapshot.version:
                self._pinned(files)  # looks at their first records
            run_job(
                increment_of(job, files)[1],
                folder,
                parse_beam_options(for_runner, self._beam_flags),  # a run sets its number of workers there
                for_runner,
                self._server,
                claim,
                Change(self._snapshot.version, replaces=replaces, commits_failed=is_alone and not replaces),
            )
        except Exception as error:
            counts = may_be_due_to(files, error)
            self._end_attempt = functools.partial(attempts.fail, None, error) if counts else attempts.forget_last
            with suppress(OSError, Unavailable):  # otherwise before the next attempt
                self._end_attempt()
                self._end_attempt = None
            if not counts:
                raise
            if not isinstance(error, (InputError, UserError, Unavailable)):
                traceback.print_exception(error)
            return not is_alone  # before a file is blamed, the machine has time
        self._note(folder, self._log.newest() or Snapshot(), attempt)
        return True

    def _note(self, folder: Folder, snapshot: Snapshot, attempt: Attempt | None) -> None:
        """Show what was committed. attempt: the one that built it; None if nothing was built."""
        self._snapshot = snapshot
        for increment in snapshot.increments:
            if increment.id == folder.increment:
                self._deciding.drop(increment.inputs)
                line = self._figures.add(increment, time.time() - attempt.since if attempt else 0.0)
                show(f"version {snapshot.version}: {line}")
                self._write_summary("watching")

    def _write_summary(self, status: str, error: str | None = None) -> None:
        if url := self._options.summary_json:
            try:
                write_summary_json(self._summary(status, error), url)
            except (OSError, UserError, Unavailable) as problem:
                show(f"warning: --summary_json {url}: it cannot be written ({error_text(problem)})")

    def _summary(self, status: str, error: str | None = None) -> dict[str, Any]:
        summary = summary_of(self._folder, self._snapshot, status, self._figures, self._deciding.waiting)
        return summary | ({"error": error} if error else {})
