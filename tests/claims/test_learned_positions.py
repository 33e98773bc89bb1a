"""What the experiments on hidden positions make of their trials."""

from finetti.claims import Context
from finetti.claims.sparse_variables import learned_positions
from finetti.studies.outcome import TrialResult


def rise_of(monkeypatch, accuracies):
    """The measured share of the time from 0.6 to 0.99 of one run with these accuracies."""
    trace = {"step": [0, 10, 20], "accuracy": accuracies}
    run = TrialResult({"solved_at": 20}, trace)
    monkeypatch.setattr(learned_positions, "run_trials", lambda *given, **params: (run,))
    _, share, _ = learned_positions.s_fig_3.evidence(Context()).measurements
    return share.value


def test_a_run_that_shows_something_at_step_0_has_not_come_all_at_once(monkeypatch):
    assert rise_of(monkeypatch, [0.7, 0.8, 1.0]) == 1.0
    assert rise_of(monkeypatch, [0.5, 0.7, 1.0]) == 0.5
    assert rise_of(monkeypatch, [0.5, 0.5, 1.0]) == 0.0
