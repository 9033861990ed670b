"""The report as a browser shows it: a real headless Chromium."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.browser import Opened, chromium
from support.datasets import read_manifest
from support.kinds import build_dataset

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def dataset() -> Path:
    return build_dataset("turns")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1400])
def test_page_has_no_errors_makes_no_requests_and_fits(browser, dataset, width, scheme):
    viewport = {"width": width, "height": 900}
    opened = Opened(browser, dataset / "report.html", viewport=viewport, color_scheme=scheme)
    assert opened.evaluate("document.querySelectorAll('.chart svg').length") == 6
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    background = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) > 3 * 128) == (scheme == "light")
    assert opened.problems == []


def test_charts_follow_when_the_scheme_changes(browser, dataset):
    opened = Opened(browser, dataset / "report.html", color_scheme="light")
    colour = "getComputedStyle(document.querySelector('.chart path')).fill"
    light = opened.evaluate(colour)
    opened.page.emulate_media(color_scheme="dark")
    deadline = time.monotonic() + 30
    while opened.evaluate(colour) == light:  # the page's policy refuses what Playwright waits with, a text it evaluates
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert opened.evaluate("document.querySelectorAll('.chart svg').length") == 6
    assert opened.problems == []


def test_charts_and_their_tables_have_the_counts_of_the_manifest(browser, dataset):
    histograms, opened = read_manifest(dataset)["statistics"]["histograms"], Opened(browser, dataset / "report.html")
    for name, histogram in histograms.items():
        bars = f"[...document.querySelectorAll('[data-chart={name}] path')]"
        labels, drawn = opened.evaluate(f"[{bars}.map(b => b.dataset.label), {bars}.map(b => +b.dataset.count)]")
        assert sum(drawn) == histogram["count"]
        rows = f"[...document.querySelectorAll('[data-bins={name}] tbody tr')]"
        printed = opened.evaluate(f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))")
        assert [(label, count) for label, count, _ in printed] == [
            (label, f"{count:,}") for label, count in zip(labels, drawn, strict=True)
        ]
        for label, count in zip(labels, drawn, strict=True):
            first, _, last = label.replace(",", "").partition("–")
            # A bar has whole buckets, of which the first may begin before the least number.
            bar = range(int(first), int(last or first) + 1)
            assert sum(n for bound, n in histogram["buckets"] if max(bound, histogram["min"]) in bar) == count


@pytest.mark.parametrize("width", [380, 1400])
def test_bars_are_as_high_as_their_counts_within_a_grid_whose_labels_have_space(browser, dataset, width):
    opened = Opened(browser, dataset / "report.html", viewport={"width": width, "height": 900})
    for name in read_manifest(dataset)["statistics"]["histograms"]:
        chart = f"[...document.querySelectorAll('[data-chart={name}] %s')]"
        heights = opened.evaluate(f"{chart % 'path'}.map(bar => [+bar.dataset.count, bar.getBBox().height])")
        lines = opened.evaluate(f"{chart % 'line'}.map(line => line.getBBox().y)")
        marks = opened.evaluate(f"{chart % 'text.y'}.map(mark => Number(mark.textContent.replaceAll(',', '')))")
        assert 2 <= len(lines) == len(marks) <= 6 and lines == sorted(lines, reverse=True)
        assert marks == [*range(0, marks[-1] + 1, marks[1])] and marks[-2] < max(count for count, _ in heights)
        pixels = (lines[0] - lines[-1]) / marks[-1]
        assert heights == [[count, pytest.approx(max(count * pixels, 2), abs=1)] for count, _ in heights]
        texts = "text:not(.y):not(:last-of-type)"
        boxes = opened.evaluate(f"{chart % texts}.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])")
        assert boxes and all(right < left for (_, right), (left, _) in pairwise(boxes))


def test_pointer_shows_what_a_bar_is_of(browser, dataset):
    opened = Opened(browser, dataset / "report.html")
    bar = opened.page.locator("[data-chart=row_tokens] path").last
    label, count = bar.get_attribute("data-label"), int(bar.get_attribute("data-count") or 0)
    tip = opened.page.locator("[data-chart=row_tokens] .tip")
    assert not tip.is_visible()
    bar.hover()
    share = f"{100 * count / read_manifest(dataset)['rows']:.2f}%"
    assert tip.is_visible() and tip.text_content() == f"{label} tokens{count:,} rows ({share})"
    opened.page.locator("h1").hover()
    assert not tip.is_visible()
    assert opened.problems == []


def test_rows_are_paged_through_with_buttons_and_keys(browser, dataset):
    page = Opened(browser, dataset / "report.html").page
    pages, output = page.locator("article"), page.locator("output")
    count = pages.count()
    assert count == 10

    def shown() -> tuple[list[int], str | None]:
        return [i for i in range(count) if pages.nth(i).is_visible()], output.text_content()

    previous, following = page.get_by_role("button", name="Previous"), page.get_by_role("button", name="Next")
    assert shown() == ([0], "Row 1 of 10") and previous.is_disabled()
    following.click()
    assert shown() == ([1], "Row 2 of 10") and previous.is_enabled()
    following.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert shown() == ([3], "Row 4 of 10")
    for _ in range(count):
        page.keyboard.press("ArrowRight")
    assert shown() == ([9], "Row 10 of 10") and following.is_disabled()
    page.locator("[data-pager]").focus()
    page.keyboard.press("ArrowLeft")
    assert shown() == ([8], "Row 9 of 10")


def test_trained_part_is_legible_without_colour(browser, dataset):
    """Each run of trained tokens is between brackets, also if special tokens are in it."""
    opened = Opened(browser, dataset / "report.html")
    marked = opened.evaluate(
        """[...document.querySelectorAll('article mark')].map(mark => [
            getComputedStyle(mark, '::before').content, mark.textContent, getComputedStyle(mark, '::after').content])"""
    )
    texts = "".join(f"{before.strip(chr(34))}{text}{after.strip(chr(34))}" for before, text, after in marked)
    assert texts.count("⟦") == texts.count("⟧") > 1
    assert texts.startswith("⟦") and "<|im_end|>⟧⟦" in texts.replace("\n", "") and "⟧<|im_end|>" not in texts


def test_page_without_scripts_shows_all_rows_and_figures(browser, dataset):
    page = Opened(browser, dataset / "report.html", java_script_enabled=False).page
    assert page.locator("article:visible").count() == 10
    assert page.get_by_role("button", name="Next").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_the_contrast_that_wcag_requires(browser, dataset, scheme):
    opened = Opened(browser, dataset / "report.html", color_scheme=scheme)
    for text, ground in [
        ("ink", "page"), ("quiet", "page"), ("ink", "panel"), ("quiet", "panel"), ("link", "panel"), ("link", "page"),
        ("ink", "soft"), ("quiet", "soft"), ("ink", "mark"), ("mark-line", "mark"),
    ]:  # fmt: skip
        first, second = sorted((_luminance(opened, text), _luminance(opened, ground)), reverse=True)
        assert (first + 0.05) / (second + 0.05) >= 4.5, (text, ground)


def _luminance(opened: Opened, name: str) -> float:
    """The relative luminance of a colour of the page, as WCAG 2 defines it."""
    code = opened.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")[1:]
    code = "".join(2 * digit for digit in code) if len(code) == 3 else code
    parts = [int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_page_has_landmarks_names_and_headings_in_order(browser, dataset):
    opened = Opened(browser, dataset / "report.html")
    assert opened.evaluate("['header', 'nav', 'main', 'footer'].every(name => document.querySelector(name))")
    levels = opened.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(title => Number(title.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    unnamed = ".chart:not([aria-label]), nav:not([aria-label]), section:not([aria-labelledby]), svg:not([aria-hidden])"
    assert opened.evaluate(f"document.querySelectorAll('{unnamed}').length") == 0
    links = "[...document.querySelectorAll('a[href]')].map(link => link.getAttribute('href'))"
    assert opened.evaluate(f"{links}.filter(link => !document.querySelector(link)).length") == 0
    ids = opened.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
