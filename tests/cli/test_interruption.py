"""Ctrl-C during any command: one sentence says what is kept; what can go on goes on from there."""

import json
import signal
import time

import pytest
from typer.testing import CliRunner

import checkpoints
from finetti.cli.main import app
from finetti.cli.output import AGAIN, NOTHING_KEPT
from finetti.studies.interruption import one_interruption
from finetti.studies.store.writer_lock import read_holder
from studies.commands import (
    MAX_WAIT_SECONDS,
    count,
    end_started,
    ended,
    family,
    start,
    stored,
    wait_for,
)

# Each does a little, then says that it has begun something long, and waits for a file to appear.
WAIT = """
import sys, time
from pathlib import Path

def wait():
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.02)
"""
TRIAL = """
def trial(seed, n):
    if n > 1:
        wait()
    return {"x": n}
"""
LEARNER = """
from sklearn.tree import DecisionTreeClassifier

class Learner(DecisionTreeClassifier):
    def fit(self, bits, labels):
        with open("fits", "a") as file:
            file.write("x")
        if len(Path("fits").read_text()) > 5:
            wait()
        return super().fit(bits, labels)
"""
NETWORK = """
import equinox as eqx
import jax

class Mean(eqx.Module):
    weights: jax.Array

    def __call__(self, tokens, mask_token):
        return tokens.mean(axis=0) @ self.weights

def network(key, token_dimension, out_dimension):
    if isinstance(key, jax.core.Tracer):  # it is tried before any trial
        return Mean(jax.numpy.zeros((token_dimension, out_dimension)))
    with open("made", "a") as file:
        file.write("x")
    if len(Path("made").read_text()) > 1:
        wait()
    return Mean(0.1 * jax.random.normal(key, (token_dimension, out_dimension)))
"""
LEDGER = """
import finetti.claims
from finetti.claims import Claim, Evidence, Ledger, close
from finetti.cli.main import main

def fast(context):
    return Evidence(close("zero", 0.0, 1.0))

def slow(context):
    wait()
    return fast(context)

claims = Claim("E-eq-1", "≤ fast", "S.", fast), Claim("E-eq-2", "slow", "S.", slow)
finetti.claims.load_ledger = lambda: Ledger(claims)
if __name__ == "__main__":
    main()
"""
STUDY = 'kind = "mine.py:trial"\n[grid]\nn = [1, 2, 3]\n'
# Command: code of the user, store, arguments.
RUNS = {
    "run": (TRIAL, "study.sqlite", "run study.toml --json"),
    "reproduce": (LEDGER, "out/evidence.sqlite", "reproduce --out out --json"),
    "probe": (
        LEARNER,
        "out/trials.sqlite",
        "probe --learner ./mine.py:Learner --sparsity 1 --context-length 8,16 --samples 4:12:4 "
        "--trials 2 --workers 1 --out out --json --quiet",
    ),
    "risk": (
        NETWORK,
        "out/trials.sqlite",
        "risk --world beta-bernoulli --network ./mine.py:network --samples 6,9 --trials 1 "
        "--context-length 3 --restarts 1 --iterations 10 --class-samples 12 --test-samples 12 "
        "--workers 1 --out out --json --quiet",
    ),
}


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    end_started()


def is_complete(command, document):
    if command == "reproduce":
        return document["complete"]
    left = document["pending"] if command == "run" else document["trials"]["all"]
    left -= 0 if command == "run" else document["trials"]["done"]
    assert document["interrupted"] is (left > 0)
    return left == 0


@pytest.mark.parametrize(
    ("command", "number", "again"),
    [
        ("run", signal.SIGTERM, False),
        ("reproduce", signal.SIGINT, False),
        ("probe", signal.SIGINT, True),
        ("risk", signal.SIGINT, True),
    ],
)
def test_what_was_interrupted_goes_on(tmp_path, command, number, again):
    code, store, arguments = RUNS[command]
    store, words = tmp_path / store, arguments.split()
    (tmp_path / "mine.py").write_text(WAIT + code)
    (tmp_path / "study.toml").write_text(STUDY)
    program = ["mine.py"] if command == "reproduce" else ["-m", "finetti"]

    process = start(*words, program=program, cwd=tmp_path)
    wait_for(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
    # What runs in this process is stored with what comes a little later.
    wait_for(lambda: command == "reproduce" or count(store) or process.poll() is not None)
    children = family(process)
    process.send_signal(number)
    while again and process.poll() is None:  # Ctrl-C by somebody impatient
        process.send_signal(number)
        time.sleep(0.01)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert "Interrupted with " in err
    assert not is_complete(command, json.loads(out))
    wait_for(lambda: ended(children))
    assert read_holder(store) is None
    before = stored(store)
    assert before
    pages = [page.read_text() for page in tmp_path.glob("out/*.html")]
    assert len(pages) == (command != "run")
    assert command == "reproduce" or all("is not complete" in page for page in pages)

    (tmp_path / "go").touch()
    process = start(*words, program=program, cwd=tmp_path)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert is_complete(command, document)
    assert before.items() <= stored(store).items()  # nothing was computed again
    for results in tmp_path.glob("out/results.json"):
        assert json.loads(results.read_text()) == document


@pytest.mark.parametrize(
    ("stopped", "arguments", "said"),
    [
        ("coherence.measure_coherence", "coherence mesa --context-length 6", NOTHING_KEPT),
        ("audit.audit_run.measure_checkpoint", "audit model --out out", NOTHING_KEPT),
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
    assert (done.exit_code, done.stderr) == (130, f"{said}\n")
