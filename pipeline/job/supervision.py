"""Supervision: a command runs in a child of this process, which reports a crash of it in one line.

A damaged file may crash a library, and a formatter may do so: the process ends by a signal, and cannot say anything
itself. This process does nothing else, so that it is there to report it. Nothing heavy is imported before the fork.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from transforms.base.places import noted_place, share_places

# How those are ended that want to end it: this is not a crash.
_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGINT, signal.SIGTERM)
# A terminal, and some schedulers, send a signal to all processes of a group: then it is not sent again.
_SECONDS_TO_END = 1.0
_PR_SET_PDEATHSIG = 1


def run_supervised(command: Callable[[], int], write_failure: Callable[[str], None]) -> int:
    """Run a command in a child of this process, which ends with it. In the child, this returns as well.

    Only Linux can end a process with its parent: elsewhere, the command runs in this process.

    Args:
        command: does the work and returns the exit code.
        write_failure: is called with how the command was ended, if a signal did that.

    Returns:
        The exit code: that of the command; 128 and the number of the signal if it was ended by Ctrl-C or the like; 1 if
        it crashed, after one line that says where.
    """
    if sys.platform != "linux":
        return command()
    share_places()
    supervisor = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = command()
        for number in _FORWARDED:  # sent again, they must not change how the process ends
            signal.signal(number, signal.SIG_IGN)
        return code
    _forward_signals(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.setitimer(signal.ITIMER_REAL, 0)
    if code >= 0:
        return code
    error = _described(child, -code)
    if -code not in _REQUESTS:
        print(f"chatmill: {error}", file=sys.stderr)
    write_failure(error)
    return 128 - code if -code in _REQUESTS else 1


def _forward_signals(child: int) -> None:
    """Send the child what this process is sent, unless that ends it already. What is ignored stays so."""
    received: int = signal.SIGTERM

    def receive(number: int, _: FrameType | None) -> None:
        nonlocal received
        received = number
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_END)

    for number in _FORWARDED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, receive)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, received))


def _described(child: int, number: int) -> str:
    name = signal.Signals(number).name
    place = noted_place(child)
    where = f" in {place}" if place else ""
    if number in _REQUESTS:
        return f"the launcher was ended by {name}{where}."
    if number == signal.SIGKILL:
        return f"the launcher was ended by {name}{where}: the system may be short of memory."
    return f"the launcher was ended by {name}{where}: a library or a formatter crashed."
