"""A study as its user sees it: from a file, on the screen, and the examples to copy from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pandas.testing import assert_frame_equal

from finetti.studies import Study
from finetti.studies.store.trial_store import Store


def test_studies_show_themselves(make_study):
    study = make_study(name="the name")
    assert "the name" in str(study)
    assert "(1, 2, 3)" in study._repr_html_()
    assert "12 trials" in str(study.run("inline", quiet=True))


def test_a_study_runs_in_any_thread(make_study):
    """Signals are the business of the main one."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(make_study().run, "inline", quiet=True).result().done == 12


def test_a_study_says_compiling_until_the_first_cohort_is_back(make_study, monkeypatch):
    activities = []

    class Recorder:
        def __enter__(self):
            return lambda progress: activities.append(progress.activity)

        def __exit__(self, *exception):
            pass

    monkeypatch.setattr("finetti.display.progress.progress_bar", lambda *arguments: Recorder())
    make_study("Together").run("inline")
    assert activities[0] == "compiling…"
    assert activities[-1] == "running"


def test_from_toml_puts_the_store_beside_the_spec(folder):
    path = folder / "mine.toml"
    path.write_text('kind = "learner.py:good"\n[grid]\nn = [1]\n[scales.big]\ntrials = 7\n')
    assert Study.from_toml(path).store == folder / "mine.sqlite"
    assert Study.from_toml(path).name == "mine"
    assert len(Study.from_toml(path, scale="big").plan.trial_positions) == 7


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


def test_a_part_of_a_grid_runs_alone_and_grows(make_study):
    def asked(counts):
        def include(params, replicate):
            return replicate < counts.get(params["n"], 0)

        return make_study(store="part.sqlite", include=include)

    first = asked({1: 2, 3: 1})
    assert first.run("inline", quiet=True).ran == 3
    assert first.status().studies[0].trials == 3
    more = asked({1: 3, 3: 1})
    assert more.run("inline", quiet=True).ran == 1
    table = more.table()
    assert list(zip(table["n"], table["replicate"], strict=True)) == [
        (1, 0),
        (1, 1),
        (1, 2),
        (3, 0),
    ]
    # The whole grid has its trials among its own.
    whole = make_study(store="part.sqlite")
    assert whole.run("inline", quiet=True).ran == 12 - 4


def test_an_estimate_comes_from_stored_trials_and_runs_none(make_study):
    study = make_study(grid={"n": [1, 2]}, trials=100)
    assert study.estimate().duration == "unknown until a trial is stored"
    assert not study.store.exists()
    make_study(grid={"n": [1, 2]}, trials=1, store=study.store.name).run("inline", quiet=True)
    with Store(study.store) as store:
        seconds = {1: 1.0, 2: 3.0}
        rows = [
            replace(row, outcome=replace(row.outcome, seconds=seconds[row.cell.params["n"]]))
            for row in store.reader.rows()
        ]
    study.store = study.store.with_name("timed.sqlite")
    with Store(study.store) as store:
        store.add(rows)
    found = study.estimate(workers=2)
    assert (found.trials, found.stored, found.pending) == (200, 2, 198)
    assert found.seconds == 99 * (1.0 + 3.0) / 2
    assert found.duration == "about 3 min 18 s with 2 workers"
    # A cell that has no trial yet takes the time of the others.
    wider = make_study(grid={"n": [1, 2, 3]}, trials=1, store="timed.sqlite")
    assert wider.estimate().seconds == 2.0
