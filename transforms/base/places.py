"""Places: what a process reads now, in memory that it shares with the process that supervises it.

A library that crashes ends its process without a word. The process that waits for it can then report where it was.
"""

from __future__ import annotations

import mmap
import os

_BYTES = 4096

_shared: mmap.mmap | None = None


def share_places() -> None:
    """Share with this process the places that processes note which are forked from it, from now on."""
    global _shared
    _shared = mmap.mmap(-1, _BYTES)


def note_place(place: str) -> None:
    """Note what this process reads now: the file, and where in it."""
    if _shared is not None:
        content = f"{os.getpid()} {place}".encode(errors="backslashreplace")[: _BYTES - 1]
        _shared[: len(content) + 1] = content + b"\0"


def noted_place(process: int) -> str | None:
    """Return the place that was noted last; None if there is none, or another process than this one noted it."""
    noted = b"" if _shared is None else _shared[:].partition(b"\0")[0]
    pid, _, place = noted.decode(errors="replace").partition(" ")
    return place if pid == str(process) else None
