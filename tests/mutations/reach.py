"""Which tests reach which function: a pytest plugin that notes it, with the time of each test.

Child processes are measured too: they inherit the test's name by an environment variable.
"""

import ast
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import coverage

from .mutant import PACKAGE, ROOT, functions

FOLDER = ROOT / ".mutations"
MAP = FOLDER / "reach.json"
SETTINGS = """[run]
core = ctrace
source = {source}
data_file = {folder}/coverage
parallel = true
context = ${{FINETTI_TEST-}}
patch = subprocess
disable_warnings = no-data-collected, module-not-measured, module-not-imported, couldnt-parse
"""


class Recorder:
    """The plugin: each test is a context of coverage of its own."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.coverage = coverage.Coverage(config_file=str(FOLDER / "coveragerc"))

    def pytest_sessionstart(self) -> None:
        """Start measuring."""
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test, here and for the processes that it starts."""
        os.environ["FINETTI_TEST"] = nodeid
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the time of set-up, call, and tear-down of a test that passed."""
        if report.failed:
            self.times[report.nodeid] = float("inf")  # tells nothing about a mutant
        self.times[report.nodeid] = self.times.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        self.coverage.stop()
        self.coverage.save()
        (FOLDER / f"times-{os.getpid()}.json").write_text(json.dumps(self.times), "utf-8")


def pytest_configure(config: Any) -> None:
    """Register the recorder in every process that runs tests."""
    if not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Recorder())


def prepare() -> None:
    """Make the folder with the settings of coverage, and forget what was measured."""
    FOLDER.mkdir(exist_ok=True)
    for old in (*FOLDER.glob("coverage*"), *FOLDER.glob("times-*.json"), *FOLDER.glob(MAP.name)):
        old.unlink()
    text = SETTINGS.format(source=ROOT / PACKAGE, folder=FOLDER)
    (FOLDER / "coveragerc").write_text(text, "utf-8")


def load_map() -> dict[str, Any]:
    """Read the map: file → function → tests, the time of each test, and what was measured."""
    if not MAP.exists():
        return {"reach": {}, "times": {}, "measured": []}
    return json.loads(MAP.read_text("utf-8"))


def summarize(measured: list[str]) -> None:
    """Combine what all processes saw in the measured folders into one map."""
    combined = coverage.Coverage(config_file=str(FOLDER / "coveragerc"))
    combined.combine(keep=True)
    data = combined.get_data()
    reach: dict[str, dict[str, list[str]]] = {}
    for name in data.measured_files():
        path = Path(name)
        if path.suffix != ".py":
            continue  # a template, whose lines run too
        spans = functions(ast.parse(path.read_text("utf-8")))
        by_line = data.contexts_by_lineno(name)
        found: dict[str, set[str]] = defaultdict(set)
        for function, (first, last) in spans.items():
            for line in range(first, last + 1):
                found[function].update(filter(None, by_line.get(line, ())))
        file = path.relative_to(ROOT / PACKAGE).as_posix()
        reach[file] = {function: sorted(tests) for function, tests in found.items() if tests}
    times: dict[str, float] = {}
    for path in FOLDER.glob("times-*.json"):
        times.update(json.loads(path.read_text("utf-8")))
    found_map = {"reach": reach, "times": times, "measured": measured}
    MAP.write_text(json.dumps(found_map), "utf-8")
