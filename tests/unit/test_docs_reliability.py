"""docs/reliability.md names tests that exist, and each promise has one."""

from __future__ import annotations

import re

from support.paths import ROOT

_NAMED = re.compile(r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`")


def rows() -> list[list[str]]:
    """The cells of each row of the tables."""
    lines = (ROOT / "docs" / "reliability.md").read_text().replace(r"\|", "/").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("fault", "---")]


def test_each_row_names_tests_that_exist():
    missing, path, sources = [], "", {}
    for fault, _, tests in rows():
        named = [found for found in _NAMED.findall(tests) if any(found)]
        if not named and not tests.startswith("the same test"):
            missing.append(fault)
        for file, test in named:
            path = file or path
            if path not in sources:
                sources[path] = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
            if not sources[path] or (test and f"def {test}(" not in sources[path]):
                missing.append(f"{path}::{test}")
    assert len(rows()) > 80
    assert not missing
