"""Pages in a real browser: Playwright drives the Chromium that the system has."""

import shutil
import time
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None or find_spec("playwright") is None,
    reason="no Playwright, or no chromium or google-chrome on PATH: install both to test the page",
)
PATIENCE = 300_000  # milliseconds, after which a browser is taken for dead


@contextmanager
def open_browser():
    """A headless browser, until the block ends."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = {"executable_path": BROWSER, "args": ["--disable-dev-shm-usage"]}
        browser = playwright.chromium.launch(timeout=PATIENCE, **options)
        try:
            yield browser
        finally:
            browser.close()


def show(browser, file, address="", size=(1200, 900), dark=False):
    """Load ``file`` in a page of its own, which has no network, and wait for its scripts."""
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height},
        is_mobile=width < 600,
        color_scheme="dark" if dark else "light",
        offline=True,
    )
    page.set_default_timeout(PATIENCE)
    page.goto(file.resolve().as_uri() + address)
    return page


def console(page):
    """What a page has said on its console, and what its scripts have not caught."""
    return [message.text for message in page.console_messages()] + list(
        map(str, page.page_errors())
    )


def wait_until(page, expression):
    """Wait for an expression of the page to be true; a page may forbid Playwright's own polling,
    which evaluates text outside of a call."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)
