"""What one worker of pytest-xdist builds, and all of them read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

# The environment variable with the folder of a session, which tests/conftest.py makes before the workers start.
SHARED = "TEST_SHARED"


def built_once(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a name, which must not be changed. build: fills it, in the worker that comes first."""
    folder = Path(os.environ[SHARED], name)
    done = folder.with_name(f"{name}.built")
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a build that failed
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
