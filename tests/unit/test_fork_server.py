"""The fork server: what the launcher is told if it was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

import pytest

from pipeline.local.fork_server import ForkServer
from transforms import Unavailable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the fork server")


@pytest.mark.parametrize("request_of", ["load", "start", "exit_code"])
def test_a_server_that_was_killed_is_unavailable(request_of):
    before = set(multiprocessing.active_children())
    server = ForkServer()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    arguments = {"load": ({},), "start": (print, receiver), "exit_code": (1,)}[request_of]
    [process] = set(multiprocessing.active_children()) - before
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(Unavailable, match="the process that starts the workers has ended"):
        getattr(server, request_of)(*arguments)
    server.close()
    receiver.close()
    sender.close()
