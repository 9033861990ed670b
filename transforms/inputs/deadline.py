"""Calls of a stranger's program, a formatter or a template, that take too long are ended, in any thread.

Timers of the system only reach the main thread of a process, and Beam calls from others. Here one thread watches the
calls of all others, and raises an exception in the one whose time is over, as soon as that executes Python again.

Some never do: a regular expression that tries everything runs in C and holds the lock of Python, so that no thread of
the process runs, this watch neither. Then a timer of the system ends the process, unless the watch sets it anew.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

_SECONDS_BETWEEN_LOOKS = 0.05
# Ends a process in which a call cannot be ended. The timer counts the time of the processor of all threads: it does not
# go on while the process is stopped, or waits.
STUCK = signal.SIGVTALRM


class _Call:
    """A call that runs, in the thread that makes this, until a moment. is_late: OutOfTime was raised in that thread.

    The time of the processor is counted from when the watch first sees the call, since to ask for it takes a while.
    """

    def __init__(self, seconds: float, of_processor: bool):
        self.thread, self.is_late, self.has_ended = threading.get_ident(), False, False
        self.seconds, self.of_processor = seconds, of_processor and hasattr(time, "pthread_getcpuclockid")
        self.until = None if self.of_processor else time.monotonic() + seconds

    def seconds_late(self) -> float:
        """For how long its time is over. The watch asks, which has the lock of Python: the thread cannot end now."""
        now = time.clock_gettime(time.pthread_getcpuclockid(self.thread)) if self.of_processor else time.monotonic()
        if self.until is None:
            self.until = now + self.seconds
        return now - self.until


# A call is removed by its own thread when it has ended, or by the watch: the remover decides whether it was in time.
_RUNNING: dict[_Call, None] = {}
_STARTING = threading.Lock()
_watch: threading.Thread | None = None
_ends_process = False
_longest = 0.0  # of the times of all calls so far


class OutOfTime(BaseException):
    """A call took too long. Not an Exception, so that a function that catches those does not catch it."""


def end_process_if_stuck() -> None:
    """Let this process, and those that are forked from it, end by the signal STUCK if a call cannot be ended."""
    global _ends_process
    _ends_process = True


def is_watch(thread: threading.Thread) -> bool:
    """Return whether a thread is the one that watches, which a fork of this process starts again when it needs it."""
    return thread is _watch


def call_within(seconds: float, function: Callable[..., Any], *arguments: Any, of_processor: bool = False) -> Any:
    """Call a function.

    Args:
        seconds: that it may take.
        function: the function.
        arguments: its arguments.
        of_processor: whether the time is what its thread takes of the processor, instead of that of the clock.

    Raises:
        OutOfTime: if it takes longer. What runs or waits in C, such as a search by a regular expression, ends first.

    Raises whatever the function raises, too.
    """
    _start_watch(seconds)
    call, arrived = _Call(seconds, of_processor), False
    _RUNNING[call] = None
    try:
        return function(*arguments)
    except OutOfTime:
        arrived = True
        raise
    finally:
        if _RUNNING.pop(call, call) is call:
            call.has_ended = True
            if not arrived:
                # It ended, or caught the exception, while the watch raised that. It must not arrive anywhere else.
                while not call.is_late:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                for _ in range(2):
                    time.sleep(0)
                raise OutOfTime


def _start_watch(seconds: float) -> None:
    """Start the thread that watches, unless it runs: a process that was forked has none. seconds: of the next call."""
    global _watch, _longest
    if seconds > _longest:
        _longest = seconds
        _set_timer()
    if _watch is None or not _watch.is_alive():
        with _STARTING:
            if _watch is None or not _watch.is_alive():
                _set_timer()  # a fork does not inherit it
                _watch = threading.Thread(target=_end_late_calls, name="deadlines", daemon=True)
                _watch.start()


def _end_late_calls() -> None:
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    late: list[_Call] = []
    while True:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        _set_timer()
        for call in [*_RUNNING]:
            if call in _RUNNING and call.seconds_late() > 0 and _RUNNING.pop(call, call) is None:
                raise_in(ctypes.c_ulong(call.thread), ctypes.py_object(OutOfTime))
                call.is_late = True
                late.append(call)
        late = [call for call in late if not call.has_ended]
        if _ends_process and any(call.seconds_late() > _until_stuck(call.seconds) for call in late):
            os.kill(os.getpid(), STUCK)


def _set_timer() -> None:
    if _ends_process:
        signal.setitimer(signal.ITIMER_VIRTUAL, _until_stuck(_longest))


def _until_stuck(seconds: float) -> float:
    """After how many seconds a call that may take some cannot be ended."""
    return 5 * seconds + 10
