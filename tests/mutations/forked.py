"""Run tests of a tree in a fork of this process, which has imported the large libraries already."""

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .mutant import ROOT

TREE = (
    *("src", "tests", "docs", "examples", "benchmarks"),
    *("conftest.py", "pyproject.toml", "README.md"),
)
SHARED = (".programs", ".checkpoints")
# No part of Finetti; and no library may start a thread or a device.
LIBRARIES = (
    *("numpy", "scipy.stats", "scipy.optimize", "scipy.special", "pandas", "pyarrow"),
    *("jax", "jax.numpy", "jax.experimental", "equinox", "optax", "jaxtyping", "beartype"),
    *("pytest", "hypothesis", "pydantic", "typer", "rich", "jinja2", "mpmath", "lazy_loader"),
    *("sklearn.utils.estimator_checks", "sklearn.linear_model", "sklearn.model_selection"),
)


@dataclass
class Outcome:
    """What became of a run: the first test that failed, if any, and how many were started."""

    failed: list[str] = field(default_factory=list)
    ran: int = 0
    seconds: float = 0.0
    stopped: bool = False  # at the end of its time, with tests left
    fault: str = ""  # why the tests did not run at all


def import_libraries() -> None:
    """Import what nearly every test needs, with the settings of ``conftest.py``."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
    for name in LIBRARIES:
        importlib.import_module(name)


def copy_tree(folder: Path) -> Path:
    """A copy of what the tests need, whose compiled programs are shared with this tree."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy2(source, folder / name)
    for name in SHARED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


class Watcher:
    """A pytest plugin that writes down which test runs, and ends the run when its time is over."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.end = path, sum(os.times()[:4]) + seconds
        self.state: dict[str, Any] = {"failed": [], "ran": 0, "stopped": False}
        self._write("collecting")

    def _write(self, test: str) -> None:
        self.state |= {"test": test, "since": time.monotonic()}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.state), "utf-8")
        part.replace(self.path)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins."""
        self.state["ran"] += 1
        self._write(nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.state["failed"].append(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a failure, in the test or around it."""
        if report.failed and report.nodeid not in self.state["failed"]:
            self.state["failed"].append(report.nodeid)

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        """Leave out the rest when the time is over."""
        if sum(os.times()[:4]) > self.end:
            self.state["stopped"] = True
            item.session.shouldstop = "the time is over"

    def pytest_sessionfinish(self) -> None:
        """Write the end."""
        self._write("finished")


def run_tests(
    tree: Path, tests: Sequence[str], mutated: str, seconds: float, limit: float, *options: str
) -> Outcome:
    """Run files of tests, or tests, of a tree in a process of its own.

    A test that takes longer than ``limit`` has failed. After ``seconds`` of processor time no
    further one is started.
    """
    state, begin = tree / "state.json", time.monotonic()
    state.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _run_pytest(tree, tests, mutated, state, seconds, options)
    found, status = {"since": begin, "test": "starting", "failed": [], "ran": 0}, None
    while status is None:
        time.sleep(0.1)
        ended, code = os.waitpid(child, os.WNOHANG)
        if state.exists():
            found = json.loads(state.read_text("utf-8"))
        if ended:
            status = os.waitstatus_to_exitcode(code)
        elif time.monotonic() - found["since"] > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            found["failed"].append(found["test"])
            status = 1
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what tests have left behind
    outcome = Outcome(found["failed"], found["ran"], time.monotonic() - begin)
    outcome.stopped = bool(found.get("stopped"))
    if not outcome.failed and (status not in (0, 2, 5) or (status == 2 and not outcome.stopped)):
        log = (tree / "log.txt").read_text("utf-8", errors="replace")
        outcome.fault = f"pytest ended with {status}: {log[-300:]}"
    return outcome


def _run_pytest(
    tree: Path, tests: Sequence[str], mutated: str, state: Path, seconds: float, options: tuple
) -> None:
    """Become the process that runs the tests, and end with their status."""
    status = 70
    try:
        os.setsid()
        os.chdir(tree)
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        path = [str(tree / "src"), str(tree / "tests")]
        os.environ |= {"PYTHONPATH": ":".join(path), "FINETTI_MUTATED": mutated}
        sys.path[:0] = path
        sys.argv = ["pytest"]
        pytest = importlib.import_module("pytest")
        command = ["-q", "-p", "no:cacheprovider", "--tb=line", "--doctest-modules", *options]
        command += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        glob = ["--doctest-glob=*.md"]
        status = pytest.main([*command, *glob, *tests], plugins=[Watcher(state, seconds)])
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status))
