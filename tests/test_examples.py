"""The examples run as a reader would run them, only shorter."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_in_context_trains_both_networks_and_draws_them(tmp_path):
    source = (EXAMPLES / "in_context.py").read_text()
    short = source.replace("STEPS, SEEDS, ADAM = 300, 5,", "STEPS, SEEDS, ADAM = 1, 2,")
    assert short != source
    command = [sys.executable, "-c", short]
    options = {"capture_output": True, "text": True, "env": os.environ, "cwd": tmp_path}
    run = subprocess.run(command, **options, check=False)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines() if line.startswith(("CME", "softmax"))]
    assert [row[0] for row in rows] == ["CME", "softmax"]
    for _, least, median, largest in rows:
        assert 0 < float(least) <= float(median) <= float(largest) < 2
    assert "softmax" in (tmp_path / "in_context.svg").read_text()


def test_a_network_trained_on_the_prior_comes_nearer_to_the_truth(tmp_path):
    source = (EXAMPLES / "prior_fitted.py").read_text()
    short = source.replace("SNAPSHOTS = 8, 32, 2, 2, 64, 5", "SNAPSHOTS = 8, 16, 1, 2, 64, 1")
    assert short != source
    sizes = ["--steps=100", "--sequences=2000", "--test-sequences=100"]
    command = [sys.executable, "-c", short, *sizes]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines() if line.strip().startswith("step ")]
    assert [row[1] for row in rows] == ["0", "100"]
    assert all(row[2] == "✓" for row in rows)  # the order: nothing tells it where tokens stand
    assert float(rows[-1][-1]) < float(rows[0][-1])
    command = [sys.executable, EXAMPLES / "prior_fitted.py", "--steps=1234"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert "--steps must be a multiple of 5. Got 1234." in run.stderr


def test_real_data_compares_all_models(tmp_path):
    out = tmp_path / "calibration.svg"
    command = [sys.executable, EXAMPLES / "real_data.py", "--rows=60", "--folds=2", "--out", out]
    # Many small parallel regions: with one thread they do not wait for each other.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("CME attention") == run.stdout.count("RFA, 100 heads") == 4
    assert "a new measurement" in out.read_text()
