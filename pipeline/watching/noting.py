"""Noting: what a stream has committed, in Beam's metrics, its log and --summary_json."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

import msgspec
from apache_beam.metrics import Metrics

from pipeline.cli.console import error_text
from pipeline.cli.options import Options
from pipeline.cli.summary_json import write_summary_json
from pipeline.watching.attempts import Attempt
from pipeline.watching.figures import Figures, summary_of
from transforms.base.errors import Unavailable, UserError
from transforms.catalog.layout import Folder
from transforms.catalog.snapshot import Snapshot
from transforms.steps.metrics import NAMESPACE
from transforms.storage.files import full_url, read_bytes

_LOGGER = logging.getLogger(__name__)
_WARNING = "warning: "


def log(text: str) -> None:
    """Log a line: a runner puts what workers log into its own log, and not what they print."""
    _LOGGER.log(logging.WARNING if text.startswith(_WARNING) else logging.INFO, "%s", text.removeprefix(_WARNING))


def log_here() -> None:
    """Let a worker in this process show all lines."""
    _LOGGER.setLevel(logging.INFO)


class Note:
    """Notes commits. It is pickled with a DoFn.

    Args:
        options: of the build.
    """

    def __init__(self, options: Options):
        self._summary_json = options.summary_json
        self._folder = Folder(full_url(options.output))

    def __call__(self, folder: Folder, snapshot: Snapshot, attempt: Attempt | None) -> None:
        """Note that an increment was committed.

        Args:
            folder: of the increment.
            snapshot: the newest one.
            attempt: the one that built it; None if nothing was built.
        """
        increment = next((each for each in snapshot.increments if each.id == folder.increment), None)
        if increment is None:  # another one has taken its place
            return
        lag = time.time() - attempt.since if attempt else 0.0
        Metrics.counter(NAMESPACE, "increments").inc()
        Metrics.counter(NAMESPACE, "increments_failed").inc(increment.status == "failed")
        Metrics.counter(NAMESPACE, "files").inc(len(increment.inputs))
        Metrics.distribution(NAMESPACE, "lag_seconds").update(round(lag))
        figures = Figures.of(self._written().get("watch", {}))
        log(f"version {snapshot.version}: {figures.add(increment, lag)}")
        self._write(summary_of(self._folder, snapshot, "watching", figures, attempt.waiting if attempt else 0))

    def end(self, status: str, error: str | None = None) -> None:
        """Note that the stream has ended. status: stopped or failed. error: why."""
        if self._summary_json:
            self._write(self._written() | {"status": status} | ({"error": error} if error else {}))

    def _written(self) -> dict[str, Any]:
        """The summary as it was written last."""
        if self._summary_json:
            with suppress(FileNotFoundError, msgspec.MsgspecError):
                return msgspec.json.decode(read_bytes(full_url(self._summary_json)), type=dict)
        return {}

    def _write(self, summary: dict[str, Any]) -> None:
        if self._summary_json:
            try:
                write_summary_json(summary, self._summary_json)
            except (OSError, UserError, Unavailable) as problem:
                log(f"warning: --summary_json {self._summary_json}: it cannot be written ({error_text(problem)})")
