"""Transition times from traces, and the charts of a probe."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from finetti.core.errors import InputError
from finetti.probe.analysis.analysis import analyze
from finetti.probe.analysis.transitions import median_interval, transition_times
from finetti.probe.charts import critical_chart, success_chart, training_chart


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
    with pytest.raises(InputError, match="traces of loss"):
        training_chart(pd.DataFrame({"n_samples": [1], "trace": [{"step": [1]}]}))
    with pytest.raises(InputError, match="a column n_samples"):
        training_chart(pd.DataFrame({"trace": [{}]}))


@pytest.fixture(scope="module")
def analysis():
    rng = np.random.default_rng(0)
    cells = itertools.product("ab", (50, 100, 400), range(40, 161, 30), range(15))
    rows = [
        (x, T, m, rng.random() < 1 / (1 + ((18 + 4 * (x == "b")) * math.log(T) / m) ** 9))
        for x, T, m, _ in cells
    ]
    names = ["learner", "context_length", "n_samples", "success"]
    return analyze(pd.DataFrame(rows, columns=names), n_resamples=50)


def data_of(chart):
    """All records of a chart, of panels and layers."""
    parts = chart.get("hconcat", [chart])
    layers = [layer for part in parts for layer in [part, *part.get("layer", [])]]
    return [each for layer in layers for each in layer.get("data", {}).get("values", [])]


def test_success_chart_shows_every_cell_and_curve(analysis, tmp_path):
    chart = success_chart(analysis)
    cells = [each for each in data_of(chart) if "trials" in each]
    wanted = analysis.success.rename(columns={"context_length": "T", "n_samples": "m"})
    assert {(c["T"], c["m"], c["rate"], c["low"]) for c in cells} == {
        (r.T, r.m, r.rate, r.low) for r in wanted.itertuples()
    }
    lines = {each["T"] for each in data_of(chart) if set(each) == {"T", "m", "rate"}}
    assert lines == {50, 100, 400}
    some = success_chart(analysis, [100])
    assert {each["T"] for each in data_of(some) if "T" in each} == {100}
    assert chart.save(tmp_path / "success.svg").stat().st_size > 5000
    with pytest.raises(InputError, match="`context_lengths`"):
        success_chart(analysis, [7])


def test_critical_chart_shows_sizes_laws_and_bounds(analysis, tmp_path):
    bounds = {"bound": lambda T: math.log2(T), "table": {50: 5.0, 400: 9.0}}
    chart = critical_chart(analysis, bounds, extrapolate_to=1000)
    records = data_of(chart)
    sizes = [each for each in records if "reason" in each]
    found = {(each["line"], each["T"]): each["m"] for each in sizes}
    for row in analysis.critical.itertuples():
        if not row.censored:
            assert found[(row.learner, row.context_length)] == row.critical
    last = {(e["line"], e["law"]): e["m"] for e in records if e.get("T") == 1000 and "law" in e}
    assert len(last) == 4
    expected = analysis.laws[("a",)].predict(1000)["power"][0]
    assert last[("a", "m = c·T^α")] == pytest.approx(expected)
    assert {each["bound"] for each in records if "bound" in each} == {"bound", "table"}
    assert chart.save(tmp_path / "critical.svg").stat().st_size > 5000
    assert (
        critical_chart(analysis, half_ceiling=True)["title"]
        == "Samples needed for half the ceiling"
    )


def test_training_chart_shows_every_run(runs, tmp_path):
    chart = training_chart(runs, "context_length")
    assert len(chart["hconcat"]) == 2
    records = data_of(chart)
    assert {each["run"] for each in records} == set(range(6))
    assert len(records) == 2 * 6 * 100
    long = pd.DataFrame([run(10, 200, 20, last=10_000)])
    thinned = [each["step"] for each in data_of(training_chart(long, "learner", ["accuracy"]))]
    assert len(thinned) <= 401
    assert (thinned[0], thinned[-1]) == (10, 10_000)
    assert chart.save(tmp_path / "training.svg").stat().st_size > 5000
