"""Runs ``finetti`` as real processes, and watches their stores."""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from finetti.core.errors import FinettiError
from finetti.studies.store.store_errors import sqlite_errors_as_sentences
from finetti.studies.store.store_reader import open_store

MAX_WAIT_SECONDS = 600  # no machine is that slow, and nobody waits for it unless something hangs
STARTED: list[subprocess.Popen[str]] = []


def start(*arguments, **options):
    """``finetti ARGUMENTS`` as a process of its own, which does not outlive its test."""
    command = [sys.executable, "-m", "finetti", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    STARTED.append(subprocess.Popen(command, **{**pipes, **options}))
    return STARTED[-1]


def end_started():
    """End what a test that failed has left behind: its pipes would spoil the tests after it."""
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def finish(*arguments, **options):
    """Run ``finetti ARGUMENTS`` to its end: exit code, stdout, stderr."""
    process = start(*arguments, **options)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    return process.returncode, out, err


def stored(path):
    """Id → time of storing, for all that is in the store now."""
    return dict(_ask(path, "SELECT id, finished FROM trials"))


def count(path):
    """How many trials are in the store now."""
    return sum(found for (found,) in _ask(path, "SELECT count(*) FROM trials"))


def _ask(path, question):
    if not Path(path).exists():
        return []
    try:
        with open_store(path) as records, sqlite_errors_as_sentences(records.path):
            return records.connection.execute(question).fetchall()
    except FinettiError as error:
        if "no such table" in str(error) or "being written" in str(error):
            return []  # being made just now
        raise


def family(process=None):
    """All that ``process`` (or this one) has started, and what those have."""
    try:
        return psutil.Process(process and process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def ended(processes):
    """Whether all of them have ended; a zombie only waits for somebody to notice."""
    states = []
    for process in processes:
        try:
            states.append(process.status())
        except psutil.NoSuchProcess:
            continue
    return all(state == psutil.STATUS_ZOMBIE for state in states)


def wait_for(condition):
    """Wait until ``condition()`` is true."""
    end = time.monotonic() + MAX_WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)
