"""Runners: one file for each of Beam's runners that needs anything particular.

A file of this package with `RUNNERS` says what is particular to these. No other file compares the names of runners.
All others that Beam has are handed to Beam.
Options are checked before Beam is imported, so that these files import Beam inside of their functions.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

from pipeline.runners.runner import Runner, is_dry_run
from transforms.base.errors import UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.job import Request


def runner_of(name: str) -> Runner:
    """Find a runner by Beam's name of it. What is not known of one is as for any runner on a cluster."""
    return next((runner for runner in known_runners() if runner.name == name), Runner(name))


@functools.cache
def known_runners() -> tuple[Runner, ...]:
    """Return the runners of all files of this package."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(runner for module in modules for runner in getattr(module, "RUNNERS", ()))


def parse_beam_options(request: Request) -> PipelineOptions:
    """Parse Beam's own options, and add our defaults.

    Raises:
        UserError: if Beam refuses an option, does not have the runner, or the runner needs something that is missing.
        Unavailable: if the runner's cluster does not answer.
    """
    runner = request.runner
    beam_options = runner.beam_options(request)
    if is_dry_run(beam_options) and not runner.has_dry_run:
        names = " and ".join(known.name for known in known_runners() if known.has_dry_run)
        raise UserError(f"--dry_run: only --append and {names} have dry runs; {runner.name} would run the job.")
    return beam_options
