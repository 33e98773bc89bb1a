"""The examples run as a reader would run them, only shorter."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_in_context_trains_both_networks_and_draws_them(tmp_path):
    out = tmp_path / "picture.svg"
    command = [sys.executable, EXAMPLES / "in_context.py", "--steps=1", "--seeds=2", "--out", out]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["CME", "softmax"]
    assert all(0 < float(low) <= float(high) < 1 for *_, low, _, high in rows)
    assert "softmax attention" in out.read_text()
