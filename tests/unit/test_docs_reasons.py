"""docs/records.md and docs/output.md list the reasons for which the library rejects and drops records."""

from __future__ import annotations

import re
from pathlib import Path

from support.paths import ROOT

SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "transforms").rglob("*.py")))
# The calls that give a reason as a string. Others pass on one that is somewhere else.
REJECTS = re.compile(r'RecordError\(\s*"(\w+)"|\bReject\([^()]*, "(\w+)"|call_user_function\(.*, "(\w+)"')
DROPS = re.compile(r'RecordDropped\(\s*"(\w+)"|\.dropped\("(\w+)"|drops\([^()]*, "(\w+)"')


def reasons_in_library(calls: re.Pattern[str]) -> set[str]:
    return {reason for found in calls.findall(SOURCE) for reason in found if reason}


def documented(page: str, heading: str) -> set[str]:
    """The words in backticks in the first column of the table below a heading."""
    text = Path(ROOT, "docs", page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row.split(" | ")[0])}


def test_each_reason_for_a_rejection_is_in_the_documentation():
    found = reasons_in_library(REJECTS)
    assert len(found) > 25 and found <= documented("records.md", "Why records are rejected")


def test_each_documented_reason_for_a_rejection_is_in_the_library():
    assert not [name for name in documented("records.md", "Why records are rejected") if f'"{name}"' not in SOURCE]


def test_each_reason_for_dropping_a_record_is_in_the_documentation():
    found = reasons_in_library(DROPS)
    assert len(found) > 4 and found <= documented("output.md", "Why records are dropped")
