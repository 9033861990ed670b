"""What the launcher must know of a runner of Beam."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.config import Options
    from pipeline.job import Job
    from transforms.dataset.layout import Folder

    # From flags to Beam's options, and its runner.
    Parse: TypeAlias = Callable[[Sequence[str]], tuple[PipelineOptions, Any]]


@dataclass(frozen=True)
class Runner:
    """A runner of Beam. The defaults hold for any runner on a cluster of which nothing else is known.

    Args:
        name: Beam's name of it.
        has_our_workers: this machine alone runs the job, with worker processes that Chatmill starts itself.
        has_dry_run: it checks a job without running it, with Beam's --dry_run.
        options_are_known: Beam's Python SDK knows all of its options; others may be those of its job server.
    """

    name: str
    has_our_workers: bool = False
    has_dry_run: bool = False
    options_are_known: bool = False

    def beam_options(self, options: Options, flags: Sequence[str], parse: Parse) -> PipelineOptions:
        """Parse Beam's options, check them, and add our defaults.

        Args:
            options: ours.
            flags: those that the user gave.
            parse: parses such flags.

        Raises:
            Unavailable: if the cluster does not answer.
            UserError: if an option is wrong, or something is missing that the job needs.
        """
        return parse(flags)[0]

    def cancel(self, beam_options: PipelineOptions, result: Any) -> None:
        """Cancel the job, whose launcher is stopped. result: of Beam. Raises an error if that cannot be done."""
        result.cancel()

    def continuing(self, result: Any) -> str | None:
        """Say which job goes on if this process is stopped; None if it is to be cancelled. result: of Beam."""
        return None

    def started(
        self,
        job: Job,
        folder: Folder,
        beam_options: PipelineOptions,
        options: Options,
        reports: str | None,
    ) -> AbstractContextManager[Any]:
        """Start what a pipeline needs; inside the context, it can run one.

        Args:
            job: of the pipeline.
            folder: of the increment.
            beam_options: of this run; what depends on the size of the job is set in them.
            options: ours.
            reports: the folder in which such workers write down where they are; None if there are none.

        Yields:
            What `beam.Pipeline` takes as its runner.
        """
        return nullcontext(self.name)


def job_name(output: str) -> str:
    """The name on a cluster of the job for an output, so that a second job for the same output is found or refused."""
    from transforms.storage.files import full_url

    url = full_url(output).rstrip("/")
    folder = re.sub("[^a-z0-9]+", "-", posixpath.basename(url).lower())[:40].strip("-")
    return "-".join(filter(None, ("chatmill", folder, hashlib.sha256(url.encode()).hexdigest()[:8])))
