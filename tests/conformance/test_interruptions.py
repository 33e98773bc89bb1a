"""Ctrl-C in any command: what has ended is kept and shown, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import checkpoints
from finetti.cli.main import app
from finetti.cli.output import AGAIN, NOTHING_KEPT
from finetti.studies.interruption import one_interruption

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
STUDY = """
kind = "mine.py:trial"
[grid]
n = [1, 2, 3]
"""
TRIAL = """
def trial(seed, n):
    pause()
    return {"x": n}
"""
N_TRIALS = 3
RISK = ("--world", "beta-bernoulli", "--network", "./mine.py:make", "--samples", "6,7,9")
FEW = ("--context-length", "3", "--restarts", "1", "--iterations", "10", "--class-samples", "12")
COMMANDS = {
    "run": ("-m", "finetti", "run", "study.toml"),
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
    out = () if name == "run" else ("--out", "out")
    command = [sys.executable, *COMMANDS[name], *out, "--json", "--quiet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # a shell lets its background jobs, these tests among them, ignore Ctrl-C
        return subprocess.Popen(command, cwd=folder, **pipes)
    finally:
        signal.signal(signal.SIGINT, before)


def n_done(document):
    if "results" in document:
        return len(document["results"])
    return document["done"] if "done" in document else document["trials"]["done"]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_interrupted_is_shown_and_goes_on(name, tmp_path):
    (tmp_path / "mine.py").write_text(PAUSE + (TRIAL if name == "run" else MINE))
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "ledger.py").write_text(PAUSE + LEDGER)
    begun, deadline = tmp_path / "begun", time.monotonic() + MAX_WAIT_SECONDS
    process = start(tmp_path, name)
    while not (begun.exists() and len(begun.read_text()) > 1):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # As schedulers of clusters end jobs, and as somebody at the keyboard.
    process.send_signal(signal.SIGTERM if name == "run" else signal.SIGINT)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    stopped = json.loads(out)
    assert stopped.get("interrupted", True) != stopped.get("complete", False)
    assert n_done(stopped) == 1
    if name != "run":
        assert stopped == json.loads((tmp_path / "out" / "results.json").read_text())
        (page,) = (tmp_path / "out").glob("*.html")
        assert name == "reproduce" or "is not complete" in page.read_text()
    if name != "reproduce":
        assert "rerun the same command" in err

    (tmp_path / "go").touch()
    process = start(tmp_path, name)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 0, err
    assert n_done(json.loads(out)) == N_TRIALS
    # The first was not made again, and the second one was.
    assert len(begun.read_text()) == 2 + N_TRIALS - 1


@pytest.mark.parametrize(
    ("stopped", "arguments", "said"),
    [
        ("coherence.measure_coherence", "coherence mesa --context-length 6", NOTHING_KEPT),
        ("audit.audit_run.walk_weights", "audit model --out out", NOTHING_KEPT),
        ("display.pages.run_result.RunResult.write_page", "audit model --out out", AGAIN),
    ],
)
def test_what_cannot_go_on_says_so(tmp_path, monkeypatch, stopped, arguments, said):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    arrays, config, _ = checkpoints.synthetic("bert")
    checkpoints.write(tmp_path / "model", arrays, config)
    monkeypatch.setattr(f"finetti.{stopped}", stop)
    with one_interruption():
        done = CliRunner().invoke(app, arguments.split())
    assert (done.exit_code, done.stderr.count("\n")) == (130, 1)
    assert done.stderr.startswith(said)
