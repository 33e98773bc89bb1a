"""A study as its user sees it: from a file, on the screen, and the examples to copy from."""

from types import SimpleNamespace

from pandas.testing import assert_frame_equal

from finetti.studies import Study
from finetti.studies.engine import MAX_IN_FLIGHT_SECONDS, MAX_LOSSES, Engine, _is_suspect
from finetti.studies.executors.base import Cohort
from finetti.studies.executors.held import hold
from finetti.studies.executors.local import InlineExecutor
from finetti.studies.status import store_status


def test_studies_show_themselves(make_study):
    study = make_study(name="the name")
    assert "the name" in str(study)
    assert "(1, 2, 3)" in study._repr_html_()
    assert "12 trials" in str(study.run("inline", quiet=True))


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


def test_a_part_of_a_grid_runs_alone_and_grows(make_study, folder):
    def asked(counts):
        def only(params, replicate):
            return replicate < counts.get(params["n"], 0)

        return make_study(store="part.sqlite", only=only)

    first = asked({1: 2, 3: 1})
    assert first.run("inline", quiet=True).ran == 3
    assert first.status().studies[0].trials == 3
    assert store_status(folder / "part.sqlite").studies == ()
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


def test_a_held_executor_starts_once_for_each_source(make_study, folder):
    started = []

    class Counting(InlineExecutor):
        def start(self, source, limits):
            started.append(source.fingerprint)
            super().start(source, limits)

    with hold(Counting()) as executor:
        assert make_study(store="held.sqlite", trials=1).run(executor, quiet=True).ran == 3
        assert make_study(store="held.sqlite", trials=2).run(executor, quiet=True).ran == 3
        (folder / "learner.py").write_text((folder / "learner.py").read_text() + "\n# edited\n")
        assert make_study(store="held.sqlite", trials=2).run(executor, quiet=True).ran == 6
    assert len(started) == len(set(started)) == 2


def test_cohorts_are_as_long_as_the_work_that_may_be_lost(make_study):
    """Trials of half a second; two cohorts for each worker, one of which waits."""
    executor = SimpleNamespace(slots=4, workers=2)
    engine = Engine(make_study().plan, None, executor, {}, print)
    assert engine._most() == 1  # before the first one is back
    engine.pace = 0.5
    assert engine._most() * engine.pace == MAX_IN_FLIGHT_SECONDS / 2


def test_a_cohort_is_suspect_that_one_more_loss_would_end():
    assert [_is_suspect(Cohort("", (), losses)) for losses in range(MAX_LOSSES)] == [0, 0, 1]
