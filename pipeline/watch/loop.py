"""The loop of `chatmill watch` in one process: what has arrived and settled is appended, again and again.

All that has to last is in the log of the dataset. A process that is killed leaves an increment that the next one
finishes, or plans again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.append import Appended
from pipeline.claims import say_who_holds
from pipeline.console import counted, error_text, show
from pipeline.options import Options
from pipeline.pinning import check_appendable
from pipeline.sources import Source
from pipeline.summary_json import check_summary_json, write_summary_json
from pipeline.watch.arrivals import Arrival, Arrivals, Key
from pipeline.watch.figures import Figures, summary_of
from pipeline.watch.finding import bytes_per_record, find_arriving, input_of
from pipeline.watch.settings import Settings
from pipeline.watch.stop import Stop
from pipeline.watch.taking import Taking, replaceable
from pipeline.watch.wanted import Wanted
from transforms.dataset.compaction.compact import compact
from transforms.dataset.derived import derive, is_stale
from transforms.dataset.layout import Folder
from transforms.dataset.log import Log
from transforms.dataset.snapshot import Increment, Snapshot
from transforms.errors import InputError, StoreError, Unavailable, UserError
from transforms.inputs.listing import InputFile
from transforms.storage.files import full_url


class Loop:
    """Appends what arrives to a dataset.

    Args:
        options: of the build.
        sources: of read_sources.
        append: of pipeline/append.py, with all but `files` and `failed` given.
        settings: when files are taken.
    """

    def __init__(
        self, options: Options, sources: Sequence[Source], append: Callable[..., Appended], settings: Settings
    ):
        self._options = options
        self._sources = sources
        self._settings = settings
        self._stop = Stop()
        self._taking = Taking(options, append, lambda: self._stop.is_asked, self._have_changed)
        self._folder = Folder(full_url(options.output))
        self._arrivals = Arrivals(settings.settle, settings.min_records, settings.max_delay)
        self._figures = Figures()
        self._log = Log(self._folder)
        self._has_begun = False
        self._snapshot = Snapshot(0)
        self._taken: Mapping[Key, set[str]] = {}
        self._wanted = Wanted(options.rewritten, show)
        self._waits_since: float | None = None
        self._compacted = time.monotonic()

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
                    self._look_or_wait()
                    self._stop.wait(began + self._settings.every - time.monotonic())
        except BaseException as error:
            self._write_summary("failed", error_text(error))
            raise
        self._write_summary("stopped")
        show(f"stopped; {self._figures.line()}")

    def _look_or_wait(self) -> None:
        """Look. If a store does not answer, say so once, and once when it answers again."""
        try:
            self._look()
        except (Unavailable, OSError) as error:
            is_transient = isinstance(error, Unavailable) or (isinstance(error, StoreError) and error.is_transient)
            if not is_transient and not self._figures.increments:
                raise
            if self._waits_since is None:
                self._waits_since = time.monotonic()
                show(f"waiting: {error_text(error)}")
        else:
            if self._waits_since is not None:
                show(f"going on after {time.monotonic() - self._waits_since:,.0f} s")
                self._waits_since = None

    def _look(self) -> None:
        """List what is there, and take what is due."""
        if not self._has_begun:
            self._begin()
        found = find_arriving(self._sources)
        now = time.monotonic()
        self._arrivals.look({key: file for key, file in found.items() if self._wanted.has(file, self._taken)}, now)
        if due := self._arrivals.due(now, bytes_per_record(self._snapshot)):
            since = {arrival.file.key: arrival.since for arrival in due}
            try:
                for increment in self._take(due, {key: file.version for key, file in found.items()}):
                    self._note(increment, since)
                self._read_log()  # somebody else may have taken some of it
            finally:
                gc.collect()  # a graph is full of cycles, and holds what it read
        self._compact()

    def _compact(self) -> None:
        """Join small shards if it is time to."""
        every = self._settings.compact_every
        if every is None or time.monotonic() - self._compacted < every or not self._snapshot.increments:
            return
        self._compacted = time.monotonic()
        found = compact(self._folder.output, when_held=say_who_holds)
        if found.increments:
            before, after = found.shards
            show(f"version {found.version}: {counted(before, 'small shard')} became {after:,}")
            self._read_log()
            self._write_summary("watching")

    def _begin(self) -> None:
        """Check that the dataset can grow, and write what is derived from its log, if a kill prevented that."""
        check_appendable(self._folder, self._options, self._sources)
        self._read_log()
        if is_stale(self._folder, self._snapshot):
            derive(self._folder, self._snapshot, self._options.report)
        self._has_begun = True

    def _read_log(self) -> None:
        self._snapshot = self._log.newest() or Snapshot(0)
        self._taken = self._snapshot.taken()

    def _take(self, due: Sequence[Arrival], listed: Mapping[Key, str]) -> Iterator[Increment]:
        """Append what is due, but for what has changed since it was listed. Yields each increment."""
        new, rewritten = [], {}
        for arrival in due:
            key, source = arrival.file.key, self._sources[arrival.file.source]
            file, problem = input_of(arrival.file, source)
            if file and problem:
                yield from self._taking.blame(file, problem)
            elif file and self._options.rewritten == "replace" and key in self._taken:
                rewritten[key] = arrival.file, file
            elif file:
                new.append(file)
        if new:
            yield from self._taking.append(new)
        ready = replaceable([file for _, file in rewritten.values()], listed, self._snapshot)
        if not ready or self._stop.is_asked:
            return
        others = [
            file
            for increment in self._snapshot.increments
            for file in increment.inputs
            if listed.get(file.key) == file.version
        ]
        try:
            yield from self._taking.replace(ready, others)
        except (InputError, UserError) as error:
            for file in ready:
                found, _ = rewritten[file.key]
                self._wanted.leave_out(found, f"the dataset keeps what it has of it: {error_text(error)}")

    def _have_changed(self, files: Sequence[InputFile]) -> bool:
        """Whether one of some files is not there any more as it was."""
        found = find_arriving(self._sources)
        now = {key: file.version for key, file in found.items()}
        return any(now.get(file.key) != file.version for file in files)

    def _note(self, increment: Increment, since: Mapping[Key, float]) -> None:
        """Show what was committed. since: when each file that was due was first seen as it is."""
        self._read_log()
        self._arrivals.drop(increment.inputs)
        arrived = [since[file.key] for file in increment.inputs if file.key in since]
        line = self._figures.add(increment, time.monotonic() - min(arrived, default=time.monotonic()))
        show(f"version {self._snapshot.version}: {line}")
        self._write_summary("watching")

    def _write_summary(self, status: str, error: str | None = None) -> None:
        if url := self._options.summary_json:
            try:
                write_summary_json(self._summary(status, error), url)
            except (OSError, UserError, Unavailable) as problem:
                show(f"warning: --summary_json {url}: it cannot be written ({error_text(problem)})")

    def _summary(self, status: str, error: str | None = None) -> dict[str, Any]:
        summary = summary_of(self._folder, self._snapshot, status, self._figures, len(self._arrivals))
        return summary | ({"error": error} if error else {})
