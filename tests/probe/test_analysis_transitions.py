"""Transition times: first passages in traces, and what never happened."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from finetti.core.errors import InputError
from finetti.probe.analysis.transitions import median_interval, transition_start, transition_times


def run(T, middle, width, last=1000):
    steps = np.arange(10, last + 1, 10)
    accuracy = 0.5 + 0.5 / (1 + np.exp(-(steps - middle) / width))
    return {"context_length": T, "learner": "paper",
            "trace": {"step": steps.tolist(), "accuracy": accuracy.tolist(),
                      "loss": (1 - accuracy + 1e-3).tolist()}}  # fmt: skip


@pytest.fixture(scope="module")
def runs():
    middles = {10: (200, 300, 400), 20: (600, 700, 5000)}
    return pd.DataFrame([run(T, at, 20) for T, each in middles.items() for at in each])


def test_a_transition_begins_above_the_accuracy_of_a_constant_answer():
    """AND of 3 bits: 87.5 % is had for nothing, and is no beginning."""
    trace = {"step": [10, 20, 30], "accuracy": [0.875, 0.88, 0.96]}
    table = pd.DataFrame({"context_length": [10], "trace": [trace]})
    found = transition_times(table, start=transition_start(0.875))
    assert found.runs["abruptness"].tolist() == [0]
    assert transition_times(table).runs["abruptness"].tolist() == [20]
    assert "steps 91.2 → 95 %" in str(found)
    with pytest.raises(InputError, match="`start`"):
        transition_times(table, start=0.95)


def test_times_are_first_passages(runs):
    found = transition_times(runs, level=0.9)
    assert found.by == ("context_length",)
    # Accuracy q is passed at middle + width·logit(2q − 1).
    solved, start, end = (200 + 20 * stats.logistic.ppf(2 * q - 1) for q in (0.9, 0.6, 0.95))
    first = found.runs.iloc[0]
    for value, exact in (
        (first.solved_at, solved),
        (first.started_at, start),
        (first.ended_at, end),
    ):
        assert exact <= value < exact + 10
    assert first.abruptness == first.ended_at - first.started_at
    assert math.isinf(found.runs["solved_at"].iloc[-1])


def test_summary_and_what_never_happened(runs):
    found = transition_times(runs)
    summary = found.summary.set_index("context_length")
    assert summary["solved"].tolist() == [3, 2]
    assert summary["slowest"][20] == math.inf
    assert math.isfinite(summary["median"][20])
    assert (summary["low"] == 0).all()  # three runs say nothing certain of the median
    assert math.isinf(summary["high"][10])
    assert "2 of 3" in str(found)
    assert "∞: not within" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("n", [6, 10, 25])
def test_the_interval_of_the_median_covers_exactly(n):
    """P(x_(k+1) ≤ median ≤ x_(n−k)) = 1 − 2·P(Binomial(n, ½) ≤ k), the largest such k."""
    interval = median_interval(np.arange(1.0, n + 1))
    k = int(interval.low) - 1
    assert interval.high == n - k
    assert 2 * stats.binom.cdf(k, n, 0.5) <= 0.05 < 2 * stats.binom.cdf(k + 1, n, 0.5)


def test_traces_are_needed():
    with pytest.raises(InputError, match="a column trace"):
        transition_times(pd.DataFrame({"context_length": [1]}))
    with pytest.raises(InputError, match='trace = \\["accuracy"\\]'):
        transition_times(pd.DataFrame({"context_length": [1], "trace": [{"step": [1]}]}))
