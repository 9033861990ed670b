"""Calls of a user's function that take too long are ended, in any thread.

Timers of the system only reach the main thread of a process, and Beam calls from others. Here one thread watches the
calls of all others, and raises an exception in the one whose time is over, as soon as that executes Python again.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

_SECONDS_BETWEEN_LOOKS = 0.05


class _Call:
    """A call that runs, in the thread that makes this, until a moment. is_late: OutOfTime was raised in that thread."""

    def __init__(self, seconds: float):
        self.thread, self.until, self.is_late = threading.get_ident(), time.monotonic() + seconds, False


# Whoever removes a call, its own thread when it has ended or the watch, decides whether it was in time.
_RUNNING: dict[_Call, None] = {}
_STARTING = threading.Lock()
_watch: threading.Thread | None = None


class OutOfTime(BaseException):
    """A call took too long. Not an Exception, so that a function that catches those does not catch it."""


def call_within(seconds: float, function: Callable[[Any], Any], value: Any) -> Any:
    """Call a function.

    Args:
        seconds: that it may take.
        function: the function.
        value: its argument.

    Raises:
        OutOfTime: if it takes longer. What waits in C, such as a search by a regular expression, ends first.

    Raises whatever the function raises, too.
    """
    _start_watch()
    call, arrived = _Call(seconds), False
    _RUNNING[call] = None
    try:
        return function(value)
    except OutOfTime:
        arrived = True
        raise
    finally:
        if _RUNNING.pop(call, call) is call and not arrived:
            # It ended, or caught the exception, while the watch raised that. It must not arrive anywhere else.
            while not call.is_late:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            for _ in range(2):
                time.sleep(0)
            raise OutOfTime


def _start_watch() -> None:
    """Start the thread that watches, unless it runs: a process that was forked has none."""
    global _watch
    if _watch is None or not _watch.is_alive():
        with _STARTING:
            if _watch is None or not _watch.is_alive():
                _watch = threading.Thread(target=_end_late_calls, name="deadlines", daemon=True)
                _watch.start()


def _end_late_calls() -> None:
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while True:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        now = time.monotonic()
        for call in [*_RUNNING]:
            if now > call.until and _RUNNING.pop(call, call) is None:
                raise_in(ctypes.c_ulong(call.thread), ctypes.py_object(OutOfTime))
                call.is_late = True
