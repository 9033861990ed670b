"""Builds that are killed before their commit, or that a test kills."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support import forks
from support.paths import ROOT
from support.signals import with_default_signals


def kill_before_the_commit(*options: str) -> None:
    """Build a dataset by one worker, and kill the build when all is written, before its version."""
    assert forks.kill("/_chatmill/versions/", "build", *options, "--direct_num_workers=1").code == forks.KILLED


def start_and_wait_for_receipts(
    options: Sequence[str], output: Path, count: int, **environment: str
) -> subprocess.Popen[str]:
    """Start a build by two workers in a new session, and wait until it has written some receipts."""
    build = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *options, f"--output={output}", "--direct_num_workers=2"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=with_default_signals, env=os.environ | environment,
    )  # fmt: skip
    increments = output / "_chatmill" / "building"
    deadline = time.monotonic() + 120
    while len(list(increments.glob("*/receipts/*.json"))) < count:
        assert build.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return build
