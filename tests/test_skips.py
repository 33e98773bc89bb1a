"""Where all packages are there, as in .ci/run, a test that is skipped is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("reason", "strict", "processes", "status"),
    [
        ("no browser", "1", (), 1),
        ("no browser", "1", ("-n", "1"), 1),
        ("SCIPY_ARRAY_API is not set", "1", (), 0),
        ("no browser", "", (), 0),
    ],
)
def test_an_unexpected_skip_ends_the_run_with_an_error(tmp_path, reason, strict, processes, status):
    text = (
        f"import pytest\n\ndef test_a():\n    pytest.skip({reason!r})\n\ndef test_b():\n    pass\n"
    )
    (tmp_path / "test_small.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "skips"]
    found = subprocess.run(
        [*words, *processes, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "FINETTI_NO_SKIPS": strict},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == status, found.stdout + found.stderr
    assert "1 passed, 1 skipped" in found.stdout
    assert ("must run, and were skipped" in found.stdout) == bool(status)
