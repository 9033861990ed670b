"""The documentation names files and folders of the repository that exist."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PATH = re.compile(r"`((?:transforms|pipeline|tests|deploy|benchmarks|examples|docs)/[^`\s:]*)`")


def paths_in(text: str) -> set[str]:
    """The paths in backticks, `{a,b}` as several; not those with a name to fill in."""
    found = set()
    for path in PATH.findall(text):
        head, _, rest = path.partition("{")
        names, _, tail = rest.partition("}")
        found |= {f"{head}{name}{tail}" for name in names.split(",")}
    return {path for path in found if "NAME" not in path and "*" not in path}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    assert not [path for path in paths_in(page.read_text()) if not (ROOT / path).exists()]


def test_paths_are_found():
    assert paths_in("`docs/{a,b}.md`, `pipeline/NAME.py`, `tests/x`") == {"docs/a.md", "docs/b.md", "tests/x"}
