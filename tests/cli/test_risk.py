"""``finetti risk`` at tiny sizes, with a network that takes milliseconds."""

import json
import subprocess
import sys

from typer.testing import CliRunner

from finetti.cli.main import app
from finetti.latent import worlds

# The mean of the tokens and a matrix.
NETWORK = """
import equinox as eqx
import jax


class Mean(eqx.Module):
    weights: jax.Array

    def __call__(self, tokens, mask_token):
        return tokens.mean(axis=0) @ self.weights


def make(key, token_dimension, out_dimension):
    if isinstance(key, jax.core.Tracer):  # it is tried before any trial
        return Mean(jax.numpy.zeros((token_dimension, out_dimension)))
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


def finish(folder, *options):
    command = [sys.executable, "-m", "finetti", "risk", "--workers", "1", *WORDS, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_study_ends_with_a_page(tmp_path):
    (tmp_path / "mine.py").write_text(NETWORK)
    done = finish(tmp_path, "--json", "-q")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "out" / "results.json").read_text())
    assert [point["n_samples"] for point in document["points"]] == [6, 9]
    for point in document["points"]:
        parts = (point[part]["value"] for part in ("generalization", "approximation"))
        whole = sum(parts) + point["optimization"]["value"]
        assert abs(whole - point["excess"]["value"]) < 1e-9
        assert point["excess"]["standard_error"] > 0
        assert point["bound"] is None
    assert any("Theorem 5.3 is about AttentionNetwork" in note for note in document["notes"])
    assert "2 of 2 trials done. Page: out/risk.html · trials: out/trials.sqlite" in done.stderr
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


def test_help_names_every_world():
    text = CliRunner().invoke(app, ["risk", "--help"], env={"COLUMNS": "400"}).output
    assert all(name in text for name in worlds)


def test_why_trials_failed_is_said_once(tmp_path):
    made = "    return Mean(0.1"
    (tmp_path / "mine.py").write_text(
        NETWORK.replace(made, f"    raise ValueError('no network')\n{made}")
    )
    done = finish(tmp_path)
    assert done.returncode == 1, done.stderr
    assert (done.stdout + done.stderr).count("Why trials failed") == 1
    assert "Why trials failed" in (tmp_path / "out" / "risk.html").read_text(encoding="utf-8")
