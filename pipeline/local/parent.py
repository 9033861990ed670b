"""Parent: a process that ends with the one that started it, also if that is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of prctl(2)


def end_with(parent: int) -> None:
    """End this process when its parent ends: on Linux, which alone can do so. Call it first in a new process.

    Args:
        parent: the id of the process that started this one. It may have ended by now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
