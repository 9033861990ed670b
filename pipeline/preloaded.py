"""Preloaded: Python's fork server imports this module, so that the workers that it forks have loaded what they need."""

import gc
import importlib
import os
from contextlib import suppress

import msgspec

from pipeline.cli.console import quiet_libraries
from pipeline.workers import PRELOADED, end_with, load

end_with(os.getppid())
quiet_libraries()
importlib.import_module("pipeline.graph")
with suppress(Exception):  # if the tokenizer cannot be loaded, the workers say so, as they load it again
    load(*msgspec.json.decode(os.environ[PRELOADED]))
gc.freeze()
