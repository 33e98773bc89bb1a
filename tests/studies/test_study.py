"""A study as its user sees it: from a file, on the screen, and the examples to copy from."""

from pandas.testing import assert_frame_equal

from finetti.studies import Study


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
