"""How a study stands: counts, failures, the rate, trials of earlier code and of other seeding."""

import json
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest

from finetti.studies import merge_stores, store_table
from finetti.studies.store.trial_store import Store
from finetti.studies.store.writer_lock import read_holder
from finetti.studies.study_status import store_status, study_status


def test_status_of_studies_and_stores(make_study):
    study = make_study("moody", fixed={"mood": "raises"}, trials=2)
    assert study.status().studies[0].pending == 6
    study.run("inline", quiet=True)
    other = make_study(store=study.store.name)
    other.run("inline", quiet=True)
    for status in (study.status(), store_status(study.store)):
        first = next(each for each in status.studies if each.failed)
        assert (first.trials, first.done, first.failed, first.pending) == (6, 4, 2, 0)
        (failure,) = status.failures
        assert (failure.error, failure.trials) == ("RuntimeError: no luck", 2)
        assert failure.cells == {"n=2": 2}
        assert 'raise RuntimeError("no luck")' in failure.traceback
        assert status.writer is None
        json.dumps(status.to_dict(), allow_nan=False)
    first, second = store_status(study.store).studies
    assert (first.name, first.seed, first.id) != (second.name, second.seed, second.id)
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
        row = next(row for row in store.reader.rows() if row.outcome.state == "failed")
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
        rows = [row for row in store.reader.rows() if row.replicate < 4]
        clock = SimpleNamespace(time=lambda: start + 20)
        monkeypatch.setattr("finetti.studies.study_status.time", clock)
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


def test_trials_of_another_seeding_are_told_and_can_be_kept(make_study, folder):
    shared = make_study(seed_by="replicate")
    shared.run("inline", quiet=True)
    study = make_study(store=shared.store.name)
    told = study.status().earlier
    assert (told.trials, told.code_version, told.seed_by) == (12, None, "replicate")
    keep = 'keep them with seed_by = "replicate", or run the study again.'
    assert str(told) == f"12 trials seeded by replicate are stored; {keep}"
    # More trials of the same seeding are not other ones, and other parameters another study.
    make_study(store=shared.store.name, trials=9, grid={"n": [1]}).run("inline", quiet=True)
    assert make_study(store=shared.store.name, grid={"n": [1, 7]}).status().earlier.trials == 4
    assert make_study(store=shared.store.name, grid={"n": [7]}).status().earlier is None
    # Both may have changed.
    with open(folder / "learner.py", "a") as file:
        file.write("# an edit\n")
    told = make_study(store=shared.store.name, seed_by="replicate", trials=9).status().earlier
    assert (told.trials, told.seed_by) == (9, "trial")
    assert f'code_version = "{told.code_version}" and seed_by = "trial"' in str(told)
    fields = {"code_version": told.code_version, "seed_by": told.seed_by}
    assert make_study(store=shared.store.name, trials=9, **fields).status().trials == 9
