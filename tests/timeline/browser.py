"""A headless Chromium for pages on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
READY = "html[data-ready=yes]"
READY_MS = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium; an error that says what to install where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise RuntimeError("no Chromium found: install it, on Debian with `apt install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def open_timeline(page: Page, path: Path) -> Page:
    """Open a timeline and wait until it is drawn."""
    page.goto(path.resolve().as_uri())
    page.wait_for_selector(READY, state="attached", timeout=READY_MS)
    return page


def wait_until(page: Page, condition: str) -> None:
    """Wait for a JavaScript condition, at most 600 frames.

    The page's policy forbids the evaluation of strings that `wait_for_function` relies on.
    """
    held = page.evaluate(
        f"""async () => {{
          for (let frame = 0; frame < 600 && !({condition}); frame++) {{
            await new Promise(requestAnimationFrame);
          }}
          return {condition};
        }}"""
    )
    assert held, f"never true: {condition}"
