"""A real Chromium, and a page in it that is held to what every page must do: no error, nothing from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
PATIENCE_MS = 40_000
WIDE, NARROW = (1280, 900), (390, 844)


def executable() -> str:
    """Where Chromium is, or the test is skipped with what to install."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium: apt install chromium")


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, driven from here."""
    api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    api.expect.set_options(timeout=PATIENCE_MS)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """Everything that a page said aloud, and every address that it asked for."""

    def __init__(self, page: Any) -> None:
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.expected: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning") or "Content Security Policy" in message.text:
            self.errors.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def check(self) -> None:
        """Fail where it complained, or looked beyond this machine."""
        wrong = [text for text in self.errors if not any(part in text for part in self.expected)]
        assert not wrong, "the console holds errors:\n" + "\n".join(wrong)
        away = {
            url
            for url in self.asked
            if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1"
        }
        assert not away, f"asked beyond this machine: {away}"


@contextmanager
def opened(browser: Any, *, size: tuple[int, int] = WIDE, dark: bool = False, calm: bool = False) -> Iterator[Any]:
    """A new page with nothing remembered; ``page.watched`` tells what it said."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light",
        reduced_motion="reduce" if calm else "no-preference", accept_downloads=True,
    )  # fmt: skip
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.watched = Watched(page)
        yield page
        page.watched.check()
    finally:
        context.close()
