"""A real Chromium, which the system has installed: Playwright drives it, and downloads no browser of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NO_CHROMIUM = "Chromium is not installed (apt-get install -y --no-install-recommends chromium)"
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a headless browser, of which each page is apart; skip the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip(NO_CHROMIUM)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A file that is open in the browser.

    Attributes:
        page: of Playwright.
        problems: what the console shows, errors of scripts, dialogs, and requests but for the file itself.
    """

    def __init__(self, browser: Any, file: Path, **options: Any):
        self.page = browser.new_page(**options)
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: request.url != file.as_uri() and self.problems.append(request.url))
        self.page.goto(file.as_uri())

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self.page.evaluate(script)
