"""Studies that come with the package run by name, in child processes, and are resumed."""

import io

import pandas as pd
from typer.testing import CliRunner

from finetti.cli.main import app


def finetti(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_shipped_study_runs_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = "random_feature_targets", "--scale", "tiny"
    first = finetti("run", *study)
    assert first.exit_code == 0, first.output
    assert "8 of 8 trials done (8 in this run" in first.stdout
    assert (tmp_path / "random_feature_targets.sqlite").is_file()
    assert "8 of 8 trials done (0 in this run" in finetti("run", *study).stdout
    assert finetti("status", *study).exit_code == 0
    summary = pd.read_csv(io.StringIO(finetti("export", *study, "--summary").stdout))
    assert list(summary["done"]) == [2] * 4
    assert (summary["key_power_1.mean"] > 0).all()
