"""Tables, exports, merges, estimates: what is done with results only reads them."""

import io
import json
import re
import shutil
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from finetti.core.errors import InputError
from finetti.show.progress import Progress, progress_bar
from finetti.studies import Study, TrialResult, merge_stores, store_table
from finetti.studies.estimate import _Pilot
from finetti.studies.export import Format, export_table, too_large
from finetti.studies.lock import read_holder
from finetti.studies.outcome import failed, outcome_of
from finetti.studies.records import Row
from finetti.studies.status import store_status, study_status
from finetti.studies.store import Store
from finetti.studies.table import make_table
from finetti.studies.trial import Cell


@pytest.fixture
def table():
    """All that a table may hold: gaps, lists, nested tables, infinity, words, truth values."""
    first = Cell("m:f", "1", "", {"n": 1, "mode": "a_b", "sizes": [1, 2], "rate": {"x": 0.5}}, 0)
    second = Cell("m:f", "1", "", {"n": 2, "mode": "b", "sizes": [3], "rate": {"x": 1.5}}, 0)
    results = [{"loss": 0.5, "k": 1, "ok": True}, {"loss": float("inf"), "k": 2, "ok": False}]
    rows = [Row(first, i, outcome_of("ab", each, 0.1), 1) for i, each in enumerate(results)]
    rows.append(Row(second, 0, failed("cd", "RuntimeError: 50 % & more"), 1))
    return make_table(rows)


def test_tables(table):
    columns = ["n", "mode", "sizes", "rate.x", "version", "replicate", "state", "loss", "k", "ok"]
    columns += ["failure"]
    assert list(table.columns) == columns
    assert table["k"].tolist()[:2] == [1, 2]
    assert table["k"].dtype == "Int64"
    assert table["ok"].dtype == "boolean"
    assert table["rate.x"].tolist() == [0.5, 0.5, 1.5]
    assert make_table([]).empty


def test_a_metric_with_the_name_of_a_parameter_keeps_both():
    cell = Cell("m:f", "1", "", {"n": 3, "state": "x"}, 0)
    table = make_table([Row(cell, 0, outcome_of("ab", {"n": 4.0}, 0.1), 1)])
    assert table.to_dict("records") == [
        {
            "n": 3,
            "parameter.state": "x",
            "version": "1",
            "replicate": 0,
            "state": "done",
            "metric.n": 4.0,
            "failure": None,
        }
    ]
    assert table.attrs["renamed"] == {"parameter.state": "state", "metric.n": "n"}


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ({1: 0.5}, "name 1, which is of type int.*write '1' or a word"),
        ({"a": 1.0, None: 0.5}, "name None, which is of type NoneType"),
        ({("a", 1): 0.5}, r"name \('a', 1\), which is of type tuple"),
        ({"": 0.5}, "A metric has an empty name"),
        ({" \t": 0.5}, "A metric has an empty name"),
        (TrialResult({"a": 1.0}, {1: [2]}), "A part of the trace has the name 1"),
        (TrialResult({"a": 1.0}, [2]), "trace of the trial is of type list"),
    ],
)
def test_names_of_metrics_are_words(returned, reason):
    outcome = outcome_of("ab", returned, 0.1)
    assert (outcome.state, outcome.metrics) == ("failed", {})
    assert re.search(reason, outcome.error)


def test_every_column_has_a_name_of_its_own():
    params = {"a": {"b": 1}, "a.b": 2, "state": 3, "parameter.state": 4}
    metrics = {"a.b": 5, "metric.a.b": 6, "replicate": 7}
    table = make_table([Row(Cell("m:f", "1", "", params, 0), 0, outcome_of("ab", metrics, 0.1), 1)])
    assert sorted(table.drop(columns=["version", "replicate", "state", "failure"]).iloc[0]) == [
        *range(1, 8),
    ]


def test_csv_is_read_back(table):
    again = pd.read_csv(io.BytesIO(export_table(table, Format.CSV)))
    assert again["loss"].tolist()[:2] == [0.5, float("inf")]
    assert again["sizes"].tolist() == ["[1, 2]", "[1, 2]", "[3]"]


def test_parquet_is_read_back(table):
    again = pd.read_parquet(io.BytesIO(export_table(table, Format.PARQUET)))
    assert again.shape == table.shape
    assert again["loss"].tolist()[:2] == [0.5, float("inf")]


def test_json_is_strict(table):
    def refuse(word):
        raise AssertionError(word)

    document = json.loads(export_table(table, Format.JSON), parse_constant=refuse)
    assert [row["loss"] for row in document["rows"]] == [0.5, "Infinity", None]
    assert [row["ok"] for row in document["rows"]] == [True, False, None]
    assert document["columns"] == list(table.columns)


def test_latex_is_escaped(table):
    text = export_table(table, Format.LATEX).decode()
    assert r"\begin{tabular}" in text
    assert r"50 \% \& more" in text
    assert r"a\_b" in text


def test_latex_is_text_whatever_it_holds():
    # A row that begins with [ would be an option of what stands before it.
    params = {"sizes": [1, 2], "note_1": "*a|b <c> \\d\n\ne \x1b"}
    row = Row(Cell("m:f", "1", "", params, 0), 0, outcome_of("ab", {"x^2": "~"}, 0.1), 1)
    lines = export_table(make_table([row, row]), Format.LATEX).decode().splitlines()
    assert lines[2] == r"sizes & note\_1 & version & state & x\textasciicircum{}2 \\"
    written = r"{[}1, 2] & {*}a\textbar{}b \textless{}c\textgreater{} \textbackslash{}d e & 1 "
    assert lines[4] == lines[5] == written + r"& done & \textasciitilde{} \\"


def test_latex_shows_small_numbers():
    cells = [Cell("m:f", "1", "", {"n": n}, 0) for n in (1, 2)]
    losses = (1.25e-9, 123456.75)
    rows = [
        Row(cell, 0, outcome_of("ab", {"loss": loss}, 0.1), 1)
        for cell, loss in zip(cells, losses, strict=True)
    ]
    text = export_table(make_table(rows), Format.LATEX).decode()
    assert "1.25e-09" in text
    assert "123457" in text


def test_whole_numbers_of_any_size_are_written():
    cell = Cell("m:f", "1", "", {"n": 2**70}, 0)
    results = [{"k": 10**30, "mixed": 1.5}, {"k": 3, "mixed": 10**30}]
    rows = [Row(cell, i, outcome_of("ab", each, 0.1), 1) for i, each in enumerate(results)]
    table = make_table(rows)
    assert too_large(table) == ["n", "k", "mixed"]
    again = pd.read_parquet(io.BytesIO(export_table(table, Format.PARQUET)))
    assert again["n"].tolist() == [str(2**70)] * 2
    assert again["k"].tolist() == [str(10**30), "3"]
    for form in Format:
        assert export_table(table, form)


def test_merging_halves_gives_the_whole(make_study, folder):
    whole = make_study(trials=6)
    whole.run("inline", quiet=True)
    left, right = make_study(trials=4), make_study(trials=6, grid={"n": [3]})
    right.store, left.store = folder / "right.sqlite", folder / "left.sqlite"
    third = make_study(trials=6, grid={"n": [1, 2]}, store="third.sqlite")
    for study in (left, right, third):
        study.run("inline", quiet=True)
    target = folder / "all.sqlite"
    merged = merge_stores(target, [left.store, right.store, third.store])
    assert (merged.added, merged.present, merged.different) == (18, 12, 0)
    assert_frame_equal(store_table(target), store_table(whole.store), check_exact=True)
    # Again: nothing to do. In another order: the same.
    before = store_table(target, details=True)
    again = merge_stores(target, [left.store, right.store, third.store])
    assert (again.added, again.repaired, again.different) == (0, 0, 0)
    assert_frame_equal(store_table(target, details=True), before, check_exact=True)
    merge_stores(folder / "other.sqlite", [third.store, right.store, left.store])
    assert_frame_equal(store_table(folder / "other.sqlite"), store_table(target), check_exact=True)
    # The merged store is that of the whole study: nothing is left to run.
    whole.store = target
    assert whole.run("inline", quiet=True).ran == 0


def test_merging_repairs_failures_and_keeps_results(make_study, folder):
    study = make_study("flaky", fixed={"flag": str(folder / "flag")}, trials=2)
    study.run("inline", quiet=True)
    broken = folder / "broken.sqlite"
    shutil.copy(study.store, broken)
    (folder / "flag").touch()
    study.run("inline", retry_failed=True, quiet=True)
    merged = merge_stores(broken, [study.store])
    assert (merged.added, merged.repaired, merged.present) == (0, 2, 4)
    assert_frame_equal(store_table(broken), study.table(), check_exact=True)
    assert merge_stores(study.store, [broken]).repaired == 0
    # Attempts are part of the story; merging again does not add to them.
    for path in (broken, folder / "new.sqlite"):
        for _ in range(2):
            merge_stores(path, [study.store])
            assert store_table(path, details=True)["attempts"].tolist() == [1, 1, 2, 2, 1, 1]


def test_a_store_is_not_merged_into_itself(make_study):
    study = make_study()
    study.run("inline", quiet=True)
    with pytest.raises(InputError, match="itself"):
        merge_stores(study.store, [study.store])
    with pytest.raises(InputError, match="no store"):
        merge_stores(study.store, [study.store.with_name("missing.sqlite")])


def test_status_of_studies_and_stores(make_study):
    study = make_study("moody", fixed={"mood": "raises"}, trials=2)
    assert study.status().studies[0].pending == 6
    study.run("inline", quiet=True)
    other = make_study(store=study.store.name)
    other.run("inline", quiet=True)
    for status in (study.status(), store_status(study.store)):
        first = status.studies[0]
        assert (first.trials, first.done, first.failed, first.pending) == (6, 4, 2, 0)
        (failure,) = status.failures
        assert (failure.error, failure.trials) == ("RuntimeError: no luck", 2)
        assert failure.cells == {"n=2": 2}
        assert 'raise RuntimeError("no luck")' in failure.traceback
        assert status.writer is None
        json.dumps(status.to_dict(), allow_nan=False)
    first, second = store_status(study.store).studies
    assert (first.name, first.seed, first.id) != (second.name, second.seed, second.id)
    # Another plan of the same trials is the same study.
    with Store(study.store) as store:
        store.add_plan(replace(store.records.plans()[0], digest=b"other"))
    assert len(store_status(study.store).studies) == 2
    assert "RuntimeError: no luck" in str(study.status())


def test_failures_that_repeat_themselves_are_told(make_study, folder):
    study = make_study("flaky", fixed={"flag": str(folder / "flag")}, trials=2)
    study.run("inline", quiet=True)
    assert study.status().failures[0].repeated == 0
    study.run("inline", retry_failed=True, quiet=True)
    assert study.status().failures[0].repeated == 2
    merge_stores(folder / "copy.sqlite", [study.store])
    assert store_status(folder / "copy.sqlite").failures[0].repeated == 2
    # Another reason begins anew.
    with Store(study.store) as store:
        row = next(row for row in store.records.rows() if row.outcome.state == "failed")
        store.add([replace(row, outcome=replace(row.outcome, error="other"), repeats=1)])
    assert sum(failure.repeated for failure in study.status().failures) == 1
    (folder / "flag").touch()
    study.run("inline", retry_failed=True, quiet=True)
    assert study.status().failures == ()


def test_rates_are_of_late_while_somebody_writes(make_study, monkeypatch):
    study = make_study(grid={"n": [1, 2]}, trials=10)
    assert study.status().seconds_left is None
    make_study(grid={"n": [1]}, trials=10, store=study.store.name).run("inline", quiet=True)
    status = study.status()
    assert status.rate == pytest.approx(10 / status.seconds)
    assert status.seconds_left == pytest.approx(status.seconds)
    with Store(study.store) as store:
        start = datetime.fromisoformat(read_holder(study.store)["since"]).timestamp()
        rows = [row for row in store.records.rows() if row.replicate < 4]
        clock = SimpleNamespace(time=lambda: start + 20)
        monkeypatch.setattr("finetti.studies.status.time", clock)
        early, late = (
            [replace(row, outcome=replace(row.outcome, finished=start + when)) for row in rows]
            for when in (-10, 10)
        )
        assert study_status(study.store, study.plan, early).rate is None  # nothing is back yet
        status = study_status(study.store, study.plan, late)
    assert status.rate == pytest.approx(4 / 20)
    assert status.seconds_left == pytest.approx(16 / (4 / 20))
    assert "12 trials per minute" in str(status)


def test_trials_of_earlier_code_are_told_and_can_be_kept(make_study, folder):
    study = make_study()
    study.run("inline", quiet=True)
    assert study.status().earlier is None
    text = (folder / "learner.py").read_text()
    (folder / "learner.py").write_text(text + "# an edit\n")
    status = study.status()
    assert (status.trials, status.earlier.trials) == (0, 12)
    assert "12 trials of an earlier version of learner.py are stored" in str(status.earlier)
    assert str(status.earlier) in " ".join(str(status).split())
    kept = make_study(store=study.store.name, code_version=status.earlier.code_version)
    assert len(kept.table()) == 12
    assert kept.status().earlier is None
    # Trials of other parameters cannot be kept, and those of other seeds are not earlier ones.
    other = make_study(store=study.store.name, fixed={"width": 9}).status().earlier
    assert (other.trials, other.code_version) == (12, None)
    study.run("inline", quiet=True)
    assert study.status().earlier is None
    assert make_study(store=study.store.name, seed=1).status().earlier.trials == 12
    assert store_table(study.store)["version"].nunique() == 2
    (folder / "learner.py").write_text(text)
    assert study.status().studies[0].done == 12


def test_summaries_have_mean_error_and_count_of_each_cell(make_study):
    study = make_study("moody", fixed={"mood": "raises"}, trials=5)
    study.run("inline", quiet=True)
    table = study.table(summary=True)
    loss = study.table().groupby("n")["loss"]
    assert table["n"].tolist() == [1, 2, 3]
    assert table["done"].tolist() == [5, 0, 5]
    assert table["failed"].tolist() == [0, 5, 0]
    assert table["loss.mean"].tolist() == pytest.approx(loss.mean().tolist(), nan_ok=True)
    assert table["loss.standard_error"].tolist() == pytest.approx(loss.sem().tolist(), nan_ok=True)
    assert "version" in table
    text = export_table(table, Format.LATEX).decode()
    assert "mood & n & version & done & failed & loss.mean & loss.standard\\_error" in text
    with pytest.raises(InputError, match="Ask for one"):
        study.table(details=True, summary=True)


def test_summaries_of_odd_metrics():
    cell = Cell("m:f", "1", "", {"done": 3}, 0)
    results = [
        {"huge": 1e300, "whole": 10**400, "ok": True, "word": "a", "wild": float("inf")},
        {"huge": -1e300, "whole": 1, "ok": False, "word": "b", "wild": 1.0, "some": 2},
    ]
    rows = [Row(cell, i, outcome_of("ab", each, 0.1)) for i, each in enumerate(results)]
    (found,) = make_table(rows, summary=True).to_dict("records")
    assert (found["parameter.done"], found["done"], found["failed"]) == (3, 2, 0)
    assert (found["huge.mean"], found["huge.standard_error"]) == (0.0, pytest.approx(1e300))
    assert (found["ok.mean"], found["ok.standard_error"]) == (0.5, 0.5)
    assert (found["some.mean"], found["some.count"]) == (2.0, 1)
    assert found["wild.mean"] == float("inf")
    for name in ("whole.mean", "whole.standard_error", "wild.standard_error"):
        assert pd.isna(found[name])
    assert not any(name.startswith("word") for name in found)


def test_estimates_come_from_a_pilot_and_store_nothing(make_study, monkeypatch):
    once = _Pilot._once

    def timed(self, cohort):
        """As if every trial had taken the same time, on any machine."""
        return [replace(outcome, seconds=0.02) for outcome in once(self, cohort)]

    monkeypatch.setattr(_Pilot, "_once", timed)
    monkeypatch.setattr("finetti.studies.estimate.time", SimpleNamespace(monotonic=lambda: 0.0))
    study = make_study(grid={"n": [1]}, trials=1000, cohort=10)
    estimate = study.estimate()
    assert (estimate.trials, estimate.pending, estimate.cohorts) == (1000, 1000, 100)
    assert estimate.seconds == pytest.approx(20.0)
    assert "about" in estimate.duration
    assert not study.store.exists()
    two = study.estimate(workers=2)
    assert two.seconds == pytest.approx(10.0)
    assert two.cohorts == 100


def test_the_pilot_looks_at_all_of_the_grid(make_study):
    # One cohort holds all cells; its first trial says nothing about the others.
    study = make_study(grid={"n": [1], "pause": [0.0, 0.05, 0.3]}, trials=4)
    estimate = study.estimate()
    assert (estimate.cohorts, estimate.pilot) == (1, 6)
    assert estimate.seconds > 4 * (0.05 + 0.3) * 0.8
    assert make_study(grid={"n": [1]}, trials=1).estimate().pilot == 1


def test_estimates_say_when_the_pilot_was_cut(make_study, monkeypatch):
    monkeypatch.setattr("finetti.studies.estimate.MAX_PILOT_SECONDS", 0.3)
    study = make_study("moody", grid={"n": [2]}, fixed={"mood": "endless"}, trials=1)
    assert study.estimate().duration.startswith("at least")


def test_cohorts_are_timed_whole(make_study):
    estimate = make_study("Together", grid={"n": [1, 2]}, trials=100).estimate()
    assert (estimate.cohorts, estimate.pilot) == (4, 200)


def test_an_estimate_of_a_finished_study(make_study):
    study = make_study()
    study.run("inline", quiet=True)
    estimate = study.estimate()
    assert (estimate.pending, estimate.stored, estimate.duration) == (0, 12, "nothing to do")


def test_studies_show_themselves(make_study):
    study = make_study(name="the name")
    assert "the name" in str(study)
    assert "(1, 2, 3)" in study._repr_html_()
    assert "12 trials" in str(study.run("inline", quiet=True))


def test_progress_says_what_is_going_on(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("study", 10, shown=True) as on_change:
        on_change(Progress(0, 0, "compiling…"))
        on_change(Progress(5, 1, "running"))
    shown = capsys.readouterr().err
    assert "running, 1 failed" in shown
    assert "5/10" in shown
    with progress_bar("study", 10, shown=False) as on_change:
        on_change(Progress(5, 1, "running"))
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with progress_bar("study", 100, shown=True) as on_change:
        on_change(Progress(50, 1, "running"))
        assert capsys.readouterr().err == ""  # a short run is silent
        monkeypatch.setattr("finetti.show.progress.MIN_SILENCE_SECONDS", 0.0)
        for stored in (51, 52, 60, 61, 69, 70):
            on_change(Progress(stored, 1, "running"))
        monkeypatch.setattr("finetti.show.progress.MAX_SILENCE_SECONDS", 0.0)
        on_change(Progress(70, 0, "running"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["51", "60", "70", "70"]
    assert re.fullmatch("study: 51 of 100 trials, 1 failed, about .* left, running", lines[0])
    assert re.fullmatch("study: 70 of 100 trials, about .* left, running", lines[-1])


def test_a_study_says_compiling_until_the_first_cohort_is_back(make_study, monkeypatch):
    activities = []

    class Recorder:
        def __enter__(self):
            return lambda progress: activities.append(progress.activity)

        def __exit__(self, *exception):
            pass

    monkeypatch.setattr("finetti.show.progress.progress_bar", lambda *arguments: Recorder())
    make_study("Together").run("inline")
    assert activities[0] == "compiling…"
    assert activities[-1] == "running"


def test_from_toml_puts_the_store_beside_the_spec(folder):
    path = folder / "mine.toml"
    path.write_text('kind = "learner.py:good"\n[grid]\nn = [1]\n[scales.big]\ntrials = 7\n')
    assert Study.from_toml(path).store == folder / "mine.sqlite"
    assert Study.from_toml(path).name == "mine"
    assert len(Study.from_toml(path, scale="big").plan.places) == 7


def test_the_example_of_a_cohort_does_not_depend_on_company(tmp_path):
    tables = []
    for cohort in (1, 6):
        study = Study(
            "finetti.studies.examples:RandomWalk",
            store=tmp_path / f"{cohort}.sqlite",
            grid={"n_steps": [5, 30], "upward": [0.2, 1.0]},
            trials=3,
            cohort=cohort,
        )
        assert study.run("inline", quiet=True).done == 12
        tables.append(study.table())
    assert_frame_equal(*tables, check_exact=True)
    up = tables[0].query("upward == 1")
    assert (up["end"] == up["n_steps"]).all()
