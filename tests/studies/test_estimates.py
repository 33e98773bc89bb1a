"""How long a study will take, from a pilot that stores nothing."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from finetti.studies.estimate import Pilot


def test_estimates_come_from_a_pilot_and_store_nothing(make_study, monkeypatch):
    once = Pilot._once

    def timed(self, cohort):
        """As if every trial had taken the same time, on any machine."""
        return [replace(outcome, seconds=0.02) for outcome in once(self, cohort)]

    monkeypatch.setattr(Pilot, "_once", timed)
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
