"""``finetti risk`` at tiny sizes, with a network that takes milliseconds."""

import json
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from finetti.cli.main import app
from finetti.latent import worlds

MAX_WAIT_SECONDS = 600  # no machine is that slow
# The mean of the tokens and a matrix; the second one that is made waits for a file to appear.
PATIENT = """
import time
from pathlib import Path

import equinox as eqx
import jax


class Mean(eqx.Module):
    weights: jax.Array

    def __call__(self, tokens, mask_token):
        return tokens.mean(axis=0) @ self.weights


def make(key, token_dimension, out_dimension):
    if isinstance(key, jax.core.Tracer):  # it is tried before any trial
        return Mean(jax.numpy.zeros((token_dimension, out_dimension)))
    with open("made", "a") as file:
        file.write("x")
    while len(Path("made").read_text()) > 1 and not Path("go").exists():
        time.sleep(0.05)
    return Mean(0.1 * jax.random.normal(key, (token_dimension, out_dimension)))
"""
TINY = {
    "--world": "beta-bernoulli",
    "--network": "./mine.py:make",
    "--samples": "6,9",
    "--trials": "1",
    "--context-length": "3",
    "--restarts": "1",
    "--iterations": "10",
    "--class-samples": "12",
    "--test-samples": "12",
    "--out": "out",
}
WORDS = [word for pair in TINY.items() for word in pair]


def start(folder):
    command = [sys.executable, "-m", "finetti", "risk", "--workers", "1", *WORDS, "--json", "-q"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, **pipes)


def test_what_was_interrupted_goes_on_and_ends_with_a_page(tmp_path):
    (tmp_path / "mine.py").write_text(PATIENT)
    process = start(tmp_path)
    made, deadline = tmp_path / "made", time.monotonic() + MAX_WAIT_SECONDS
    while not (made.exists() and len(made.read_text()) > 1):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 130, err
    stopped = json.loads(out)
    assert stopped["interrupted"] is True
    assert stopped["trials"] == {"all": 2, "done": 1, "failed": 0}
    assert "The study is not complete" in (tmp_path / "out" / "risk.html").read_text()

    (tmp_path / "go").touch()
    process = start(tmp_path)
    out, err = process.communicate(timeout=MAX_WAIT_SECONDS)
    assert process.returncode == 0, err
    assert len(made.read_text()) == 3  # the first was not made again
    document = json.loads(out)
    assert document == json.loads((tmp_path / "out" / "results.json").read_text())
    assert [point["n_samples"] for point in document["points"]] == [6, 9]
    assert document["points"][0] == stopped["points"][0]
    for point in document["points"]:
        parts = (point[part]["value"] for part in ("generalization", "approximation"))
        whole = sum(parts) + point["optimization"]["value"]
        assert abs(whole - point["excess"]["value"]) < 1e-9
        assert point["excess"]["standard_error"] > 0
        assert point["bound"] is None
    assert any("Theorem 5.3 is about AttentionNetwork" in note for note in document["notes"])
    assert "2 of 2 trials done. Page: out/risk.html · trials: out/trials.sqlite" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "parts-6.svg",
        "parts-9.svg",
        "results.json",
        "risk.html",
        "risk.svg",
        "trials.sqlite",
    ]
    page = (tmp_path / "out" / "risk.html").read_text()
    assert "finetti risk --world beta-bernoulli --network ./mine.py:make --samples 6,9" in page
    assert "There is none for this network" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--world", "nope"), "Unknown world 'nope'. Choose one of beta-bernoulli, finite-a"),
        (("--network", "nope"), "Choose one of attention, limited-attention, conditional-mean"),
        (("--network", "./nothing.py:make"), "nothing.py"),
        (("--samples", "ten"), "--samples cannot read 'ten'"),
        (("--samples", "0"), "--samples must be at least 1"),
        (("--option", "noise_variance=-1"), "must be a finite number > 0. Got -1 instead.\n"),
        (
            ("--option", "colour=3"),
            "--option must name settings of linear-gaussian: key_dimension, val",
        ),
        (
            ("--world", "sphere", "--option", "rotations=1"),
            "--option must name settings of sphere: ",
        ),
        (("--option", "noise"), "Write NAME=VALUE"),
        (("--learning-rate", "0"), "--learning-rate should be greater than 0"),
        (("--time-limit", "0"), "time limit must be a positive number of seconds"),
        (("--workers", "2", "--cluster", "tcp://x:1"), "Give one"),
    ],
)
def test_wrong_calls_are_one_sentence_of_advice(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["risk", *arguments])
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_world():
    text = CliRunner().invoke(app, ["risk", "--help"], env={"COLUMNS": "400"}).output
    assert all(name in text for name in worlds)


def test_why_trials_failed_is_said_once(tmp_path):
    source = PATIENT.replace("    with open", "    raise ValueError('no network')\n    with open")
    (tmp_path / "mine.py").write_text(source)
    command = [sys.executable, "-m", "finetti", "risk", "--workers", "1", *WORDS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert (done.stdout + done.stderr).count("Why trials failed") == 1
    assert "Why trials failed" in (tmp_path / "out" / "risk.html").read_text(encoding="utf-8")
