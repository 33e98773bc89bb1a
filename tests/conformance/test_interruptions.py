"""Ctrl-C in every command with a page: what has ended is shown, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent the POSIX way")

MAX_WAIT_SECONDS = 600  # no machine is that slow
# Notes that a trial has begun; all but the first wait for a file to appear.
PAUSE = """
import time
from pathlib import Path

def pause():
    with open("begun", "a") as file:
        file.write("x")
    while len(Path("begun").read_text()) > 1 and not Path("go").exists():
        time.sleep(0.05)
"""
MINE = """
import equinox as eqx
import jax
from sklearn.tree import DecisionTreeClassifier

class Patient(DecisionTreeClassifier):
    def fit(self, bits, labels):
        pause()
        return super().fit(bits, labels)

class Mean(eqx.Module):
    weights: jax.Array

    def __call__(self, tokens, mask_token):
        return tokens.mean(axis=0) @ self.weights

def make(key, token_dimension, out_dimension):
    if not isinstance(key, jax.core.Tracer):  # as which it is tried before any trial
        pause()
    return Mean(0.1 * jax.random.normal(key, (token_dimension, out_dimension)))
"""
LEDGER = """
import finetti.claims
from finetti.claims import Claim, Evidence, Ledger, close
from finetti.cli.main import main

def measure(context):
    pause()
    return Evidence(close("zero", 0.0, 1.0))

claims = tuple(Claim(f"E-eq-{number}", "≤", "S.", measure) for number in (1, 2, 3))
finetti.claims.load_ledger = lambda: Ledger(claims)
main()
"""
N_TRIALS = 3
RISK = ("--world", "beta-bernoulli", "--network", "./mine.py:make", "--samples", "6,7,9")
FEW = ("--context-length", "3", "--restarts", "1", "--iterations", "10", "--class-samples", "12")
COMMANDS = {
    "probe": (
        *("-m", "finetti", "probe", "--workers", "1", "--learner", "./mine.py:Patient"),
        *("--sparsity", "1", "--context-length", "8", "--samples", "16,24,32", "--trials", "1"),
    ),
    "risk": (
        *("-m", "finetti", "risk", "--workers", "1", "--trials", "1", *RISK, *FEW),
        *("--test-samples", "12"),
    ),
    "reproduce": ("ledger.py", "reproduce"),
}


def start(folder, name):
    command = [sys.executable, *COMMANDS[name], "--out", "out", "--json", "--quiet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, **pipes)


def n_done(document):
    return document["trials"]["done"] if "trials" in document else len(document["results"])


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_interrupted_is_shown_and_goes_on(name, tmp_path):
    (tmp_path / "mine.py").write_text(PAUSE + MINE)
    (tmp_path / "ledger.py").write_text(PAUSE + LEDGER)
    begun, deadline = tmp_path / "begun", time.monotonic() + MAX_WAIT_SECONDS
    process = start(tmp_path, name)
    while not (begun.exists() and len(begun.read_text()) > 1):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    stopped = json.loads(out)
    assert stopped == json.loads((tmp_path / "out" / "results.json").read_text())
    assert stopped.get("interrupted", True) != stopped.get("complete", False)
    assert n_done(stopped) == 1
    (page,) = (tmp_path / "out").glob("*.html")
    if name != "reproduce":
        assert "is not complete" in page.read_text()
        assert "rerun the same command" in err

    (tmp_path / "go").touch()
    process = start(tmp_path, name)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 0, err
    assert n_done(json.loads(out)) == N_TRIALS
    # The first was not made again, and the second one was.
    assert len(begun.read_text()) == 2 + N_TRIALS - 1
