"""What the tests share: where things are, and how a dataset is built and read."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
# Else gcsfs, which looks when it is imported, asks for the kind of each bucket at an address of Google's.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# The files that take longest come first, or the other cores would wait for them at the end.
LONGEST = ("test_stores", "test_flink")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@dataclass(frozen=True)
class Ended:
    """How a build ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def build(capfd, monkeypatch):
    """Builds a dataset in this process, as `python -m pipeline` would with these options."""
    from pipeline.cli import build as build_with_cli

    def run(*options: object) -> Ended:
        capfd.readouterr()
        code = build_with_cli([str(option) for option in options])
        return Ended(code, *capfd.readouterr())

    return run
