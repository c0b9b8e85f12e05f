"""A real headless Chromium, driven by Playwright. Playwright downloads no browser: it takes the one of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Return the path of Chromium. Raises RuntimeError, which says what to install."""
    for name in (os.environ.get("CHROMIUM", ""), *NAMES):
        if name and (found := shutil.which(name)) is not None:
            return found
    raise RuntimeError(
        "There is no Chromium on PATH. Install it (Debian, Ubuntu: apt install chromium), or set CHROMIUM to its path."
    )


@contextmanager
def browser() -> Iterator[Any]:
    """Start a browser, and end it at the end of the block."""
    from playwright.sync_api import sync_playwright  # imported late, because only `make browser` and `make screenshots` install it

    with sync_playwright() as playwright:
        # Chromium's own sandbox needs rights that root and containers do not have. The browser opens a page on loopback only.
        opened = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield opened
        finally:
            opened.close()
