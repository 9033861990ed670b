"""DirectRunner: Beam's runner on this machine, with our own workers."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from pipeline.runners.runner import Runner
from transforms.base.errors import UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.job import Request


class _DirectRunner(Runner):
    def beam_options(self, request: Request) -> PipelineOptions:
        from apache_beam.options.pipeline_options import DirectOptions

        # Beam's own default of one worker looks like a user's choice of one; with 0 the launcher chooses.
        beam_options = self.parse(["--direct_num_workers=0", *request.flags])
        direct = beam_options.view_as(DirectOptions)
        if direct.direct_num_workers < 0:
            raise UserError(
                f"--direct_num_workers {direct.direct_num_workers}: expected 1 or more, or 0, which chooses."
            )
        if direct.direct_running_mode == "multi_threading":
            raise UserError("--direct_running_mode multi_threading: expected in_memory or multi_processing.")
        if not any(flag.startswith("--direct_running_mode") for flag in request.flags):
            direct.direct_running_mode = None
        elif direct.direct_running_mode == "in_memory" and direct.direct_num_workers > 1:
            raise UserError(
                f"--direct_num_workers {direct.direct_num_workers}: --direct_running_mode in_memory has one worker. "
                "Leave one of the two out."
            )
        return beam_options

    def prepare(self, request: Request) -> None:
        in_memory = any(flag.endswith("in_memory") for flag in request.flags)  # then there are no workers
        if request.has_formatter and not in_memory and sys.platform == "linux":
            from pipeline import fork_server

            fork_server.start()

    def started(self, *arguments: Any) -> AbstractContextManager[Any]:
        from pipeline.workers import local_runner

        return local_runner(*arguments)


RUNNERS = (_DirectRunner("DirectRunner", has_our_workers=True, options_are_known=True),)
