"""The tables of layouts and of forms of turns in docs/records.md are those of the program and the samples."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from support.paths import ROOT


@pytest.fixture(scope="module")
def docs() -> Any:
    spec = importlib.util.spec_from_file_location("docs_shapes", ROOT / "docs" / "shapes.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_shapes_are_up_to_date(docs):
    text = docs.RECORDS.read_text()
    assert docs.with_tables(text) == text, "run .venv/bin/python docs/shapes.py"
    assert text.count(docs.START) == text.count(docs.END) == 1
    assert "| `messages` | a dialog" in text.partition(docs.START)[2].partition(docs.END)[0]
