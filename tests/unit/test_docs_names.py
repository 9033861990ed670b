"""What the documentation and the hints name exists: files, reasons, options, pages; and tables are up to date."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from support.command_line import chatmill
from support.paths import ROOT

PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {ROOT / "CHANGELOG.md"})
PATH = re.compile(r"`((?:transforms|pipeline|tests|deploy|benchmarks|examples|docs)/[^`\s:]*)`")
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "transforms").rglob("*.py")))
# The calls that give a reason as a string. Others pass on one that is somewhere else.
REJECTS = re.compile(r'RecordError\(\s*"(\w+)"|\bReject\([^()]*, "(\w+)"|call_user_function\(.*, "(\w+)"')
DROPS = re.compile(r'RecordDropped\(\s*"(\w+)"|\.dropped\("(\w+)"|drops\([^()]*, "(\w+)"')
HINTS = re.findall(r'^    "(\w+)": (.*),$', Path(ROOT, "pipeline/show/hints.py").read_text(), re.MULTILINE)


def paths_in(text: str) -> set[str]:
    """The paths in backticks, `{a,b}` as several; not those with a name to fill in."""
    found = set()
    for path in PATH.findall(text):
        head, _, rest = path.partition("{")
        names, _, tail = rest.partition("}")
        found |= {f"{head}{name}{tail}" for name in names.split(",")}
    return {path for path in found if "NAME" not in path and "*" not in path}


def test_files_that_pages_name_exist():
    named = {(page.name, path) for page in PAGES for path in paths_in(page.read_text())}
    assert len(named) > 40 and [name for name in named if not (ROOT / name[1]).exists()] == []


def reasons_in_library(calls: re.Pattern[str]) -> set[str]:
    return {reason for found in calls.findall(SOURCE) for reason in found if reason}


def documented(page: str, heading: str) -> set[str]:
    """The words in backticks in the first column of the table below a heading."""
    text = Path(ROOT, "docs", page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row.split(" | ")[0])}


def test_reasons_of_the_library_are_in_the_documentation_and_the_other_way_round():
    rejects, drops = reasons_in_library(REJECTS), reasons_in_library(DROPS)
    of_rejects, of_drops = (
        documented("records.md", "Why records are rejected"),
        documented("output.md", "Why records are dropped"),
    )
    assert len(rejects) > 25 and rejects <= of_rejects
    assert len(drops) > 4 and drops <= of_drops
    assert [name for name in of_rejects if f'"{name}"' not in SOURCE] == []


def test_a_hint_is_for_a_documented_reason_and_names_options_and_pages_that_exist(capfd):
    with pytest.raises(SystemExit):
        chatmill("build", "--help", "all")
    options = {*re.findall(r"--\w+", capfd.readouterr().out)}
    assert len(HINTS) > 20 and {reason for reason, _ in HINTS} <= documented("records.md", "Why records are rejected")
    assert {option for _, hint in HINTS for option in re.findall(r"--\w+", hint)} <= options
    assert all((ROOT / page).exists() for _, hint in HINTS for page in re.findall(r"docs/\w+\.md", hint))


def test_the_tables_of_records_and_of_checks_are_up_to_date():
    docs = runpy.run_path(str(ROOT / "docs" / "shapes.py"))
    for page, row in ((docs["RECORDS"], "| `messages` | a dialog"), (docs["CHECKS_PAGE"], "| turns | `late_system` |")):
        text = page.read_text()
        assert docs["with_tables"](page) == text, "run .venv/bin/python docs/shapes.py"
        assert text.count(docs["START"]) == text.count(docs["END"]) == 1
        assert row in text.partition(docs["START"])[2].partition(docs["END"])[0]
