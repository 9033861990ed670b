"""Processes: whether one that is known by its id is still running, and on which machine that can be found out."""

from __future__ import annotations

import os
import platform
import uuid
from pathlib import Path

import psutil

_PROC = Path("/proc")


def this_boot() -> str:
    """Return what all processes of this machine have in common since it was started, also those in containers."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{platform.node()} {uuid.getnode():x}"


def this_machine() -> str:
    """Return what all processes have in common whose ids mean the same.

    On Linux it is the boot and the namespace of process ids: containers of one machine have different ones, even if
    they have the same host name.
    """
    try:
        return f"{this_boot()} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return this_boot()


def start_of_process(pid: int) -> str | None:
    """Return when a process of this machine started, None if there is none of this id, or if it has ended.

    On Linux it is counted from the boot: the time of day may be set while a process runs.
    """
    if _PROC.is_dir():
        try:
            # After the name, which may hold anything: the state, and as the 20th field the start.
            fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.Error:
        return None


def is_running(pid: int, started: str | None) -> bool:
    """Return whether a process of this machine is running; also if another user's processes cannot be seen."""
    if (start := start_of_process(pid)) is not None:
        return start == started
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False
