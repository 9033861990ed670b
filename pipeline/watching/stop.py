"""Stop: Ctrl-C and SIGTERM end a watch between two commits."""

from __future__ import annotations

import os
import signal
import time
from types import TracebackType
from typing import Any

from pipeline.cli.console import show_phase

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A terminal sends Ctrl-C to all processes, and the one that supervises this one sends it again after a second.
_SAME = 2.0
_SLICE = 0.2


class Stop:
    """A context in which Ctrl-C and SIGTERM are noted. A signal that is ignored stays ignored.

    Another one, some seconds after the first, ends the process at once, as if there were no such context.

    Attributes:
        is_asked: whether there was such a signal.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._first = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the process is asked to end."""
        end = time.monotonic() + seconds
        while not self.is_asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))  # a handler does not end it

    def _note(self, number: int, _: object) -> None:
        if not self.is_asked:
            self.is_asked, self._first = True, time.monotonic()
            show_phase("stopping after the increment that is being built")
        elif time.monotonic() - self._first > _SAME:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
