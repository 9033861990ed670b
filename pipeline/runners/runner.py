"""What the launcher must know of a runner of Beam."""

from __future__ import annotations

import hashlib
import io
import posixpath
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.base.errors import UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.job import Request
    from pipeline.plan import Plan


@dataclass(frozen=True)
class Runner:
    """A runner of Beam. The defaults hold for any runner on a cluster of which nothing else is known.

    name: Beam's name of it. has_our_workers: this machine alone runs the job, with processes that Chatmill starts
    itself. has_dry_run: it checks a job without running it, with Beam's --dry_run. options_are_known: Beam's Python SDK
    knows all of its options; others may be those of its job server.
    """

    name: str
    has_our_workers: bool = False
    has_dry_run: bool = False
    options_are_known: bool = False

    def beam_options(self, request: Request) -> PipelineOptions:
        """Parse Beam's options, check them, and add our defaults. Raises UserError, or Unavailable of a cluster."""
        return self.parse(request.flags)

    def parse(self, flags: Sequence[str]) -> PipelineOptions:
        """Parse flags as Beam does. Raises UserError if it refuses one or the runner, or this has no dry runs."""
        from apache_beam.runners.runner import create_runner

        beam_options = parse_flags([*flags, f"--runner={self.name}"])
        if is_dry_run(beam_options) and not self.has_dry_run:
            raise UserError(f"--dry_run: {self.name} has no dry runs: it would run the job. --append has them.")
        try:
            create_runner(self.name)
        except (ValueError, ImportError, AttributeError) as error:  # the runner is Beam's, or module.Class
            raise UserError(f"--runner {self.name}: {error}") from None
        return beam_options

    def prepare(self, request: Request) -> None:
        """Start what takes its time, before this process imports Beam. The job may not come to run."""

    def cancel(self, beam_options: PipelineOptions, result: Any) -> None:
        """Cancel the job, whose launcher is stopped. result: of Beam. Raises an error if that cannot be done."""
        result.cancel()

    def continuing(self, result: Any) -> str | None:
        """Say which job goes on if this process is stopped; None if it is to be cancelled. result: of Beam."""
        return None

    def started(
        self, request: Request, plan: Plan, beam_options: PipelineOptions, reports: str | None
    ) -> AbstractContextManager[Any]:
        """Start what a pipeline needs. Inside the context, what it yields is the runner of `beam.Pipeline`.

        beam_options: what depends on the size of the job is set in them. reports: the folder in which our workers write
        down where they are; None if there are none.
        """
        return nullcontext(self.name)


def parse_flags(flags: Sequence[str]) -> PipelineOptions:
    """Return Beam's options, from arguments. Raises UserError if it refuses one."""
    from apache_beam.options.pipeline_options import PipelineOptions

    beam_options, printed = PipelineOptions(flags), io.StringIO()
    try:
        with redirect_stderr(printed):
            beam_options.get_all_options()
    except SystemExit:
        raise UserError(printed.getvalue().strip().splitlines()[-1].partition("error: argument ")[2]) from None
    return beam_options


def is_dry_run(beam_options: PipelineOptions) -> bool:
    """Return whether Beam's options ask that nothing is run."""
    from apache_beam.options.pipeline_options import TestOptions

    return bool(beam_options.view_as(TestOptions).dry_run)


def job_name(output: str) -> str:
    """The name on a cluster of the job for an output, so that a second job for the same output is found or refused."""
    from transforms.storage.files import full_url

    url = full_url(output).rstrip("/")
    folder = re.sub("[^a-z0-9]+", "-", posixpath.basename(url).lower())[:40].strip("-")
    return "-".join(filter(None, ("chatmill", folder, hashlib.sha256(url.encode()).hexdigest()[:8])))
