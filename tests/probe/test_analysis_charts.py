"""Charts of a probe: they show every cell, every size and every run."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from finetti.core.errors import InputError
from finetti.probe.analysis.probe_analysis import analyze
from finetti.probe.probe_charts import critical_chart, success_chart, training_chart


def run(T, middle, last=1000):
    steps = np.arange(10, last + 1, 10)
    accuracy = 0.5 + 0.5 / (1 + np.exp(-(steps - middle) / 20))
    trace = {
        "step": steps.tolist(),
        "accuracy": accuracy.tolist(),
        "loss": (1.01 - accuracy).tolist(),
    }
    return {"context_length": T, "learner": "paper", "trace": trace}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    cells = itertools.product("ab", (50, 100, 400), range(40, 161, 30), range(15))
    rows = [
        (x, T, m, seed, rng.random() < 1 / (1 + ((18 + 4 * (x == "b")) * math.log(T) / m) ** 9))
        for x, T, m, seed in cells
    ]
    names = ["learner", "context_length", "n_samples", "seed", "success"]
    return pd.DataFrame(rows, columns=names)


@pytest.fixture(scope="module")
def analysis(table):
    return analyze(table, n_resamples=50)


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
    assert chart.save(tmp_path / "success.svg").stat().st_size > 5000


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


def test_wide_bands_do_not_hide_the_sizes(table):
    """Three trials a cell: the band is cut off, and the sizes keep most of the axis."""
    few = analyze(table[(table["seed"] < 3) & (table["learner"] == "a")], n_resamples=50)
    chart = critical_chart(few, extrapolate_to=1e6)
    scale = chart["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    drawn = [each["m"] for each in data_of(chart) if each.get("m") is not None]
    highest = max(drawn + [e["high"] for e in data_of(chart) if "reason" in e and e["high"]])
    assert max(each["high"] for each in data_of(chart) if "law" in each) > 1.5 * highest
    assert scale[1] == pytest.approx(1.5 * highest)


def test_training_chart_shows_every_run(tmp_path):
    runs = pd.DataFrame([run(T, at) for T in (10, 20) for at in (100, 200, 300)])
    chart = training_chart(runs, "context_length")
    assert len(chart["hconcat"]) == 2
    records = data_of(chart)
    assert {each["run"] for each in records} == set(range(6))
    assert len(records) == 2 * 6 * 100
    long = pd.DataFrame([run(10, 200, last=10_000)])
    thinned = [each["step"] for each in data_of(training_chart(long, "learner", ["accuracy"]))]
    assert len(thinned) <= 401
    assert (thinned[0], thinned[-1]) == (10, 10_000)
    assert chart.save(tmp_path / "training.svg").stat().st_size > 5000


def test_charts_of_traces_need_them():
    with pytest.raises(InputError, match="traces of loss"):
        training_chart(pd.DataFrame({"n_samples": [1], "trace": [{"step": [1]}]}))
    with pytest.raises(InputError, match="a column n_samples"):
        training_chart(pd.DataFrame({"trace": [{}]}))


def test_open_ends_of_intervals_are_marked(table):
    """Sizes up to 100: some intervals end beyond, and say so where their bars end."""
    few = analyze(table[(table["n_samples"] <= 100) & (table["seed"] < 4)], n_resamples=50)
    open_high = {
        (key[0], key[-1])
        for key, size in few.sizes.items()
        if size.interval.high > size.m_max and size.censored != "right"
    }
    records = data_of(critical_chart(few))
    marked = {(e["line"], e["T"]): e["high"] for e in records if e.get("open") == "high"}
    assert set(marked) == open_high
    assert marked
    assert set(marked.values()) == {100}
