"""Runners: one file for each of Beam's runners that needs anything particular.

A file of this package with `RUNNERS` says what is particular to these. No other file compares the names of runners.
All others that Beam has are handed to Beam.
Options are checked before Beam is imported, so that these files import Beam inside of their functions.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from pipeline.runners.runner import Runner


@functools.cache
def find_runner(name: str) -> Runner:
    """Find a runner by Beam's name of it. What is not known of one is as for any runner on a cluster."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    known = (runner for module in modules for runner in getattr(module, "RUNNERS", ()))
    return next((runner for runner in known if runner.name == name), Runner(name))
