"""Pages in a real browser."""

import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium or google-chrome on PATH: install one to test the page"
)


def load_page(text, folder, address="", script="", options=()):
    """The final document of the page, and what it wrote to the console."""
    page = folder / "page.html"
    before, end, after = text.rpartition("</body>")
    page.write_text(f"{before}<script>{script}</script>{end}{after}")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
        *options,
        "--dump-dom",
        page.as_uri() + address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console
