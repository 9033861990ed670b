"""Trainers: their environments, and the conversations of the datasets that they train on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT
from support.programs import CACHE

needs_trainers = pytest.mark.skipif(
    "TEST_TRAINERS" not in os.environ, reason="trainers take gigabytes: tests/run.sh --trainers installs and runs them"
)
HERE = ROOT / "tests" / "trainers"
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


def find_python(requirements: str, *alone: str) -> Path:
    """Return the Python of an environment with a requirements file, which is created once.

    alone: packages that are installed without what they need.
    """
    content = (HERE / requirements).read_bytes() + sys.version.encode() + " ".join(alone).encode()
    environment = CACHE / f"{Path(requirements).stem}-{hashlib.sha256(content).hexdigest()[:12]}"
    python, stamp = environment / "bin" / "python", environment / "installed"
    if not stamp.exists():
        install = [python, "-m", "pip", "install", "--quiet", "-r", HERE / requirements]
        commands = [[sys.executable, "-m", "venv", "--clear", environment], install]
        if alone:
            commands.append([*install[:-2], "--no-deps", "--ignore-requires-python", *alone])
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.skip(f"{requirements} cannot be installed: {' '.join(map(str, command))}: {reason}")
        stamp.touch()
    return python


def conversation(number: int) -> dict[str, Any]:
    """A conversation of one to three turns; no two are alike."""
    messages: list[dict[str, Any]] = []
    for turn in range(1 + number % 3):
        words = [WORDS[(number * 5 + turn * 7 + i * (number + 1)) % len(WORDS)] for i in range(4 + (number + turn) % 9)]
        messages.append({"role": "user", "content": f"{number}: {' '.join(words)}"})
        messages.append({"role": "assistant", "content": " ".join(reversed(words))})
    return {"messages": messages}


def environment_in(folder: Path) -> dict[str, str]:
    """The environment of a trainer, with a cache of its own: `datasets` may take another dataset from a shared one."""
    return os.environ | {"HF_DATASETS_CACHE": str(folder / "cache")}
