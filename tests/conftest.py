"""Settings of all tests, and the fixture that builds a dataset in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
# Otherwise gcsfs requests the type of each bucket from a Google server. It reads this variable when it is imported.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# The slowest files run first. Otherwise the other cores would wait for them at the end.
SLOWEST = ("test_stores", "test_flink")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in SLOWEST)


@dataclass(frozen=True)
class BuildResult:
    """The exit code of a build, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str


@pytest.fixture
def build(capfd, monkeypatch):
    """Build a dataset in this process, as `python -m pipeline` does with the same options."""
    from pipeline.cli import build as build_with_cli

    def run(*options: object) -> BuildResult:
        capfd.readouterr()
        code = build_with_cli([str(option) for option in options])
        return BuildResult(code, *capfd.readouterr())

    return run
