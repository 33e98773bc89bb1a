import io
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pandas as pd
import pytest
from typer.testing import CliRunner

from finetti.cli.main import app
from finetti.studies import Study
from finetti.studies.coordinator import make_plan
from finetti.studies.store.store_reader import StoreReader

SPEC = """
kind = "finetti.studies.examples:estimate_pi"
trials = 3
[grid]
n_points = {logrange = [10, 100, 2]}
[scales.tiny]
trials = 1
"""
KIND = """
def f(seed, n):
    if n == 2:
        raise RuntimeError("no luck")
    return {"loss": 1 / n}
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def failing(tmp_path):
    (tmp_path / "mine.py").write_text(KIND)
    path = tmp_path / "failing.toml"
    path.write_text('kind = "mine.py:f"\n[grid]\nn = [1, 2]\n')
    return path


def finetti(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def run(path, *options):
    return finetti("run", path, "--executor", "inline", *options)


def test_run_status_export(spec):
    result = run(spec)
    assert result.exit_code == 0
    assert "6 of 6 trials done (6 in this run" in result.stdout
    assert result.stderr == ""
    again = run(spec)
    assert (again.exit_code, "0 in this run" in again.stdout) == (0, True)
    store = spec.with_suffix(".sqlite")
    for place in (spec, store):
        status = finetti("status", place)
        assert status.exit_code == 0
        assert "study" in status.stdout
        exported = finetti("export", place)
        assert (
            exported.stdout.splitlines()[0] == "n_points,version,replicate,state,pi,error,failure"
        )
        assert len(exported.stdout.splitlines()) == 7


def test_json_is_one_document_on_stdout(spec):
    for arguments in (
        ("run", spec, "--dry-run", "--json"),
        ("run", spec, "--json"),
        ("run", spec, "--json", "--quiet"),
        ("status", spec, "--json"),
        ("status", spec.with_suffix(".sqlite"), "--json"),
        ("merge", spec.with_name("all.sqlite"), spec.with_suffix(".sqlite"), "--json"),
        ("export", spec, "--format", "json"),
    ):
        result = finetti(*arguments)
        assert result.exit_code == 0, result.stderr
        assert isinstance(json.loads(result.stdout), dict), arguments
    document = json.loads(finetti("run", spec, "--json").stdout)
    assert (document["trials"], document["done"], document["ran"]) == (6, 6, 0)


def test_dry_run_counts_and_estimates_and_stores_nothing(spec):
    result = finetti("run", spec, "--dry-run")
    assert result.exit_code == 0
    for words in ("trials          6", "estimated time  unknown until a trial is stored"):
        assert words in result.stdout
    assert [path.name for path in spec.parent.iterdir()] == ["study.toml"]
    run(spec, "--scale", "tiny")
    # Its own store has the first trials of the study. A cluster is not asked, and does not run.
    for options in ((), ("--cluster", "tcp://127.0.0.1:1")):
        found = json.loads(finetti("run", spec, "--dry-run", "--json", *options).stdout)
        assert (found["pending"], found["duration"].endswith("with 1 worker")) == (4, True)
    assert finetti("status", spec).stdout.split()[-4:] == ["6", "2", "0", "4"]


def test_a_run_plans_once(spec, monkeypatch):
    plans = []
    monkeypatch.setattr(
        "finetti.studies.study.make_plan", lambda *given: plans.append(given) or make_plan(*given)
    )
    for command in (("run", "--executor", "inline"), ("run",), ("status",), ("export",)):
        assert finetti(command[0], spec, *command[1:]).exit_code == 0
        assert len(plans) == 1
        plans.clear()


def test_what_kinds_print_does_not_get_into_results(failing):
    text = 'print("loading")\n' + KIND.replace("    if n", "    print('running')\n    if n")
    failing.with_name("mine.py").write_text(text)
    assert json.loads(run(failing, "--json").stdout)["failed"] == 1
    failing.with_name("mine.py").write_text(text + "# other\n")
    assert json.loads(finetti("status", failing, "--json").stdout)["studies"][0]["pending"] == 2
    assert "loading" not in finetti("export", failing).stdout


def test_what_other_programs_print_does_not_get_into_results(failing, capfd):
    text = "import os\nos.system('echo loading')\n"
    text += KIND.replace("    if n", "    os.write(1, b'running')\n    if n")
    failing.with_name("mine.py").write_text(text)
    for arguments in (
        ["run", failing, "--json", "--dry-run"],
        ["run", failing, "--json", "--executor", "inline"],
        ["status", failing, "--json"],
    ):
        with pytest.raises(SystemExit):
            app(list(map(str, arguments)))
        assert isinstance(json.loads(capfd.readouterr().out), dict)


def test_failures_are_exit_code_1(failing):
    result = run(failing)
    assert result.exit_code == 1
    assert "1 of 2 trials done, 1 failed" in result.stdout
    assert "RuntimeError: no luck" in result.stdout
    assert "n=2 (1)" in result.stdout
    assert "--retry-failed" in result.stdout
    assert run(failing).exit_code == 1
    again = run(failing, "--retry-failed")
    assert "--details" in again.stdout
    assert "--retry-failed" not in again.stdout  # it failed in the same way twice
    assert 'raise RuntimeError("no luck")' not in finetti("status", failing).stdout
    assert 'raise RuntimeError("no luck")' in finetti("status", failing, "--details").stdout
    failing.with_name("mine.py").write_text(KIND.replace("raise", "return {'loss': 0} #"))
    # The source has changed, and so have the trials.
    assert run(failing).exit_code == 0


def test_after_an_edit_the_earlier_trials_are_told(failing):
    result = finetti("export", failing)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No trials are stored" in result.stderr
    run(failing)
    failing.with_name("mine.py").write_text(KIND + "# an edit\n")
    sentence = "2 trials of an earlier version of mine.py are stored; keep them with code_version"
    export, status = finetti("export", failing), finetti("status", failing)
    assert (export.exit_code, export.stdout, status.exit_code) == (1, "", 1)
    assert sentence in export.stderr
    assert sentence in " ".join(status.stdout.split())
    assert sentence in finetti("run", failing, "--dry-run").stderr  # before hours are spent
    (version,) = re.findall('code_version = ".*"', export.stderr)
    failing.write_text(f"{version}\n{failing.read_text()}")
    assert len(finetti("export", failing).stdout.splitlines()) == 3
    assert finetti("status", failing).exit_code == 0


def test_export_reads_the_store_once_and_tells_of_another_seeding(spec, monkeypatch):
    text = spec.read_text()
    spec.write_text(f'seed_by = "replicate"\n{text}')
    run(spec)
    reads, rows = [], StoreReader.rows
    monkeypatch.setattr(StoreReader, "rows", lambda self: reads.append(self) or rows(self))
    assert finetti("export", spec).exit_code == 0
    assert len(reads) == 1
    spec.write_text(text)
    found = finetti("export", spec)
    assert (found.exit_code, found.stdout) == (1, "")
    assert "6 trials seeded by replicate are stored; keep them with seed_by = " in found.stderr


def test_the_version_in_the_table_keeps_the_trials(failing):
    failing.with_name("mine.py").write_text("def f(seed, n): return {'loss': 1.0}\n")
    run(failing)
    table = pd.read_csv(io.StringIO(finetti("export", failing).stdout), dtype=str)
    (version,) = {each.partition("+")[2] for each in table["version"]}
    failing.with_name("mine.py").write_text("def f(seed, n): return {'loss': 1.0}  # an edit\n")
    failing.write_text(f'code_version = "{version}"\n{failing.read_text()}')
    assert finetti("export", failing).stdout.count("done") == len(table)


def test_export_says_what_is_missing(spec):
    run(spec)
    spec.write_text(spec.read_text().replace("trials = 3", "trials = 5"))
    found = finetti("export", spec, "--summary")
    assert found.exit_code == 0
    assert "4 trials have no result yet" in found.stderr


def test_export_summary(spec):
    run(spec)
    header, *lines = finetti("export", spec, "--summary").stdout.splitlines()
    columns = (
        "n_points,version,done,failed,pi.mean,pi.standard_error,error.mean,error.standard_error"
    )
    assert header == columns
    assert [line.split(",")[2] for line in lines] == ["3", "3"]


def test_columns_that_had_to_be_renamed_are_told(failing):
    failing.with_name("mine.py").write_text("def f(seed, n): return {'n': 1.0, 'state': 'x'}\n")
    run(failing)
    result = finetti("export", failing)
    assert (
        result.stdout.splitlines()[0] == "n,version,replicate,state,metric.n,metric.state,failure"
    )
    assert "n → metric.n, state → metric.state" in result.stderr


def test_scales_seeds_and_stores(spec):
    small = run(spec, "--scale", "tiny", "--store", spec.with_name("other.sqlite"))
    assert "2 of 2 trials done" in small.stdout
    assert not spec.with_suffix(".sqlite").exists()
    run(spec, "--seed", "1")
    run(spec)
    finetti("export", spec.with_suffix(".sqlite"), "--out", spec.with_name("all.csv"))
    table = pd.read_csv(spec.with_name("all.csv"))
    assert len(table) == 12
    assert table["error"].nunique() > 6


@pytest.mark.parametrize("form", ["csv", "json", "latex", "parquet"])
def test_exports_to_files(spec, form):
    run(spec)
    path = spec.with_name(f"table.{form}")
    result = finetti("export", spec, "--format", form, "--out", path, "--details")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "6 trials written" in result.stderr
    assert path.stat().st_size > 100


MAIN = """
import sys
from finetti.cli.main import main
try:
    main()
except SystemExit as ended:
    print("ENDED", ended.code)
print("LOADED", *sys.modules)
"""


def test_finished_studies_load_nothing_heavy(spec):
    run(spec)
    command = [sys.executable, "-c", MAIN, "run", str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ENDED 0" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "finetti.cli.main" in loaded
    assert not loaded & {"jax", "pandas", "distributed", "scipy", "altair"}


def test_a_damaged_store_at_the_command_line(tmp_path):
    (tmp_path / "s.toml").write_text(
        'kind = "finetti.studies.examples:estimate_pi"\ntrials = 4\n[grid]\nn_points = [10, 20]\n'
    )
    study = Study.from_toml(tmp_path / "s.toml")
    study.run("inline", quiet=True)
    shutil.copy(study.store, tmp_path / "copy.sqlite")
    with closing(sqlite3.connect(study.store)) as connection, connection:  # as a disk may
        query = "SELECT sql FROM sqlite_master WHERE name = 'done_is_done'"
        (trigger,) = connection.execute(query).fetchone()
        connection.execute("DROP TRIGGER done_is_done")
        connection.execute(
            "UPDATE trials SET metrics = replace(metrics, '0.', '0.1') WHERE rowid = 3"
        )
        connection.execute(trigger)

    for command in ("run", "status", "export"):
        told = finetti(command, tmp_path / "s.toml")
        assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (2, "", 1), told
        assert "row 3 (n_points=10, replicate" in told.stderr
    for place in (tmp_path / "s.toml", study.store):
        saved = finetti("export", place, "--salvage")
        assert (saved.exit_code, len(saved.stdout.splitlines())) == (1, 8)
        assert "Damaged, and left out: row 3" in saved.stderr
    merged = finetti("merge", tmp_path / "new.sqlite", study.store)
    assert (merged.exit_code, "row 3" in merged.stdout) == (1, True)
    again = finetti("run", tmp_path / "s.toml", "--store", tmp_path / "new.sqlite", "--quiet")
    assert (again.exit_code, "8 of 8 trials done (1 in this run" in again.stdout) == (0, True)
    exported = finetti("export", tmp_path / "new.sqlite").stdout
    assert exported == finetti("export", tmp_path / "copy.sqlite").stdout
