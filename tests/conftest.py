"""Settings of all tests, and the fixture that builds a dataset in this process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from support.drawn import AT_LENGTH, FEW_PARAMETERS, IS_FAST, examples
from support.shared import SHARED

os.environ["HF_HUB_OFFLINE"] = "1"
# Otherwise gcsfs requests the type of each bucket from a Google server. It reads this variable when it is imported.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# A busy machine is not an error of the code, and the same code passes each time, if it does not run at length.
# With a mutant (run_mutants.py) it is enough that some example fails.
phases = [Phase.explicit, Phase.generate] if "TEST_MUTANTS" in os.environ else [*Phase]
settings.register_profile(
    "suite",
    examples(100),
    deadline=None,
    derandomize=not AT_LENGTH,
    phases=phases,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

if AT_LENGTH:
    os.environ.setdefault("PYTEST_TIMEOUT", "0")  # the long tests may take an hour


def pytest_xdist_auto_num_workers() -> int | None:
    """Three workers for two cores: many tests of the whole suite wait for a server, a process or a clock."""
    return None if IS_FAST or AT_LENGTH else (os.cpu_count() or 1) * 3 // 2


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once, before the workers of pytest-xdist are started
        from support.models import PACKAGES, install_models

        try:
            install_models()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.exit(f"what {PACKAGES} names cannot be installed: {error}", 1)
        shared = tempfile.TemporaryDirectory(prefix="chatmill-tests-")
        config.add_cleanup(shared.cleanup)
        os.environ[SHARED] = shared.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not IS_FAST:
        return
    list_functions: dict[Any, list[pytest.Item]] = {}
    for item in items:
        list_functions.setdefault(item.function, []).append(item)  # type: ignore[attr-defined]
    kept = {item for found in list_functions.values() for item in found[:: -(-len(found) // FEW_PARAMETERS)]}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@dataclass(frozen=True)
class BuildResult:
    """The exit code of a build, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str


@pytest.fixture
def build(capfd, monkeypatch):
    """Build a dataset in this process, as `python -m pipeline` does with the same options.

    What it builds obeys the laws of tests/support/laws.
    """
    from support.command_line import chatmill

    def run(*options: object) -> BuildResult:
        capfd.readouterr()
        return BuildResult(chatmill("build", *options), *capfd.readouterr())

    return run


@pytest.fixture
def hurried(monkeypatch) -> None:
    """Pauses of this process are fifty times shorter: those between attempts."""
    sleep, pause = asyncio.sleep, time.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds, *result: sleep(seconds / 50, *result))
    monkeypatch.setattr(time, "sleep", lambda seconds: pause(seconds / 50))
