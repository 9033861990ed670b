"""The documentation site: it builds without a warning and without a network, and documents each public name."""

from __future__ import annotations

import html
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import transforms
from support.datasets import build_in_process
from support.paths import ROOT
from support.shared import built_once

# Sphinx in a process that cannot open a connection.
OFFLINE = """
import socket, sys
def refuse(*_): raise OSError("the documentation is built without a network")
socket.socket.connect = socket.getaddrinfo = refuse
from sphinx.cmd.build import main
sys.exit(main(sys.argv[1:]))
"""
# What a browser would load from another server when it shows a page.
LOADED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|<link\b[^>]*\bhref="(?:https?:)?//|@import"""
)


@pytest.fixture(scope="module")
def site() -> Path:
    return built_once("docs", build_site) / "site"


def build_site(folder: Path) -> None:
    command = [sys.executable, "-c", OFFLINE, "-W", "--keep-going", "-q", "-c", "docs", "-d", folder / "work"]
    built = subprocess.run(
        [*command, ".", folder / "site"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert built.returncode == 0, built.stderr


def section_of(name: str, page: str) -> str | None:
    """Return the text of the section of a public name; None if there is none."""
    start = page.find(f'id="transforms.{name}"')
    if start < 0:
        return None
    content = page[page.index("<dd>", start) : page.index("</section>", start)]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", content)).split())


@pytest.mark.parametrize("name", transforms.__all__)
def test_each_public_name_has_a_section_with_its_docstring(site, name):
    first_words = inspect.getdoc(getattr(transforms, name)).split()[:2]
    section = section_of(name, (site / "docs/api.html").read_text())
    assert section is not None
    assert re.findall(r"\w+", " ".join(first_words)) == re.findall(r"\w+", section)[: len(first_words)]


def test_each_guide_is_a_page_and_in_the_navigation(site):
    guides = [*ROOT.glob("docs/**/*.md"), ROOT / "deploy" / "README.md", *ROOT.glob("*.md")]
    entry = (site / "index.html").read_text()
    assert len(guides) > 10
    for guide in guides:
        page = guide.relative_to(ROOT).with_suffix(".html")
        assert (site / page).is_file()
        assert page == Path("README.html") or f'href="{page}"' in entry


def test_navigation_has_three_sections(site):
    captions = re.findall(r'<span class="caption-text">(.*?)</span>', (site / "index.html").read_text())
    assert captions == ["Guide", "Reference", "Internals"]


def test_each_option_of_a_build_is_on_the_page_of_options(site):
    page = (site / "docs/options.html").read_text()
    listed = {html.unescape(re.sub("<[^>]*>", "", cell)).split()[0] for cell in re.findall(r"<td><p>(.*?)</p>", page)}
    shown = build_in_process("build", "--help", "all").stdout.partition("\nexamples:\n")[0]
    names = {*re.findall(r"^  (--\w+)", shown, re.MULTILINE)} - {"--version"}
    assert len(names) > 60 and names <= listed


def test_no_page_loads_anything_from_another_server(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 15
    assert not [page for page in pages if LOADED.search(page.read_text())]
