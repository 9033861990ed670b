"""Preloaded: Python's fork server imports this module, so that the workers that it forks have loaded what they need."""

import gc
import importlib
import os
import signal
from contextlib import suppress

import msgspec

from pipeline import fork_server
from pipeline.cli.console import quiet_libraries
from pipeline.workers import end_with, load

launcher, path = msgspec.json.decode(os.environ[fork_server.GIVEN])
end_with(launcher)
fork_server.pid = os.getpid()
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes
quiet_libraries()
importlib.import_module("pipeline.graph")
# If the tokenizer cannot be loaded, the workers say so, as they load it again.
with suppress(Exception), open(path, "rb") as pipe:
    load(*msgspec.json.decode(pipe.readline()))
gc.freeze()
