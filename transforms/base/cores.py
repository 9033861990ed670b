"""Cores: how many of them this process may use, on its machine and in its container."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may use: those that it may run on, and no more than its container has time on.

    cgroup: where Linux shows the limits of this process's control group, of version 1 or 2.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            quota, period = map(int, " ".join((cgroup / name).read_text() for name in names).split())
            if quota > 0 and period > 0:
                return max(1, min(count, -(-quota // period)))
    return count
