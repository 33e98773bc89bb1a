"""Pages in a real browser: one headless Chromium, spoken to over two pipes (DevTools protocol)."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium or google-chrome on PATH: install one to test the page"
)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # there is no network
    "--remote-debugging-pipe",
)
PATIENCE = 300  # seconds, after which a browser is taken for dead


@contextmanager
def open_browser():
    """A browser, until the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        asked, answered = f"{folder}/asked", f"{folder}/answered"
        os.mkfifo(asked)
        os.mkfifo(answered)
        # The browser reads from 3 and writes to 4. (A fork that runs Python would disturb JAX.)
        words = ["sh", "-c", f'exec "$@" 3<{asked} 4>{answered}', "sh", BROWSER, *OPTIONS]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*words, f"--user-data-dir={folder}/profile"], **quiet)
        sink, source = os.open(asked, os.O_WRONLY), os.open(answered, os.O_RDONLY)
        try:
            yield Browser(source, sink)
        finally:
            process.kill()
            process.wait()
            os.close(sink)
            os.close(source)


class Browser:
    """Sends commands and collects events."""

    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.number, self.buffer = 0, b""
        self.pages = {}

    def command(self, method, session=None, **parameters):
        """Send a command and return its result; events that come meanwhile go to their pages."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self.sink, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if page := self.pages.get(answer.get("sessionId")):
                page.on_event(answer["method"], answer["params"])

    def _receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.source], [], [], deadline - time.monotonic())
            part = os.read(self.source, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser does not answer")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def show(self, file, address="", size=(1200, 900), dark=False):
        """Load ``file`` in a page of its own, and wait until its scripts have run."""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, attached["sessionId"], target)
        self.pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.command(f"{domain}.enable")
        page.resize(*size)
        page.emulate(dark=dark)
        page.command("Page.navigate", url=file.resolve().as_uri() + address)
        page.wait("location.protocol === 'file:' && document.readyState === 'complete'")
        return page


class Page:
    """One page: what it says on its console, and what it asks the network for."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.console, self.requests = [], []

    def on_event(self, method, parameters):
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(a.get("value", a)) for a in parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(parameters["exceptionDetails"]["exception"]["description"])
        elif method == "Log.entryAdded":
            self.console.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def command(self, method, **parameters):
        return self.browser.command(method, self.session, **parameters)

    def run(self, script):
        """The value of an expression, which may be a promise."""
        options = {"returnByValue": True, "awaitPromise": True}
        # What the page may not do, a test may not do in its name.
        options["allowUnsafeEvalBlockedByCSP"] = False
        done = self.command("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description", done))
        return done["result"].get("value")

    def wait(self, condition):
        """Until ``condition`` is true in the page, which may be another one by then."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"never true: {condition}")

    def resize(self, width, height):
        options = {"deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, **options)

    def emulate(self, dark=False, media=""):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def screenshot(self, whole=False):
        """The page as PNG, as far as it is on the screen, or the ``whole`` of it."""
        options = {"captureBeyondViewport": whole}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "scale": 1} | {
                k: size[k] for k in ("width", "height")
            }
        return base64.b64decode(self.command("Page.captureScreenshot", **options)["data"])

    def close(self):
        del self.browser.pages[self.session]
        self.browser.command("Target.closeTarget", targetId=self.target)
