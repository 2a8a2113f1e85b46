"""Debian's Chromium, driven by Playwright, for tests marked ``browser``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

#: Without the last one, Chromium calls home at its start.
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


#: The one that is open.
_open: list[Any] = []


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser (Playwright's ``Browser``), closed at the end.

    Where one is open already it is that: Playwright allows no second one beside it.
    """
    if _open:
        yield _open[0]
        return
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        _open.append(browser)
        try:
            yield browser
        finally:
            _open.clear()
            browser.close()
