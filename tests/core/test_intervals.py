"""Slopes of power laws and success rates: agreement with SciPy, coverage by simulation, degenerate
data."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from finetti.core.errors import InputError
from finetti.core.statistics.intervals import Interval, wilson_interval
from finetti.core.statistics.power_laws import power_law_slope

untimed = settings(deadline=None)  # a busy machine is no failure
STANDARD_ERRORS = 4  # a correct program fails such a test once in 16 000 seeds; seeds are fixed


def assert_rate(hits, expected):
    """The mean of ``hits`` equals a probability up to its standard error."""
    error = math.sqrt(expected * (1 - expected) / len(hits))
    assert abs(np.mean(hits) - expected) < STANDARD_ERRORS * error


def test_interval():
    interval = Interval(-1.0, 2.0, 0.9, "by hand")
    assert interval.width == 3.0
    assert -1.0 in interval
    assert 2.0 in interval
    assert 2.1 not in interval
    assert math.nan not in interval
    many = Interval(np.zeros(2), np.array([1.0, 2.0]), 0.9, "by hand")
    assert many.contains(np.array([1.5, 1.5])).tolist() == [False, True]
    assert 0.5 in many
    assert 1.5 not in many


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, math.nan])
def test_confidence_is_checked(confidence):
    with pytest.raises(InputError, match="`confidence`"):
        power_law_slope([1, 2, 3], [1, 2, 4]).interval(confidence)


@untimed
@given(st.floats(-5, 5), st.floats(-20, 20), st.booleans())
def test_exact_power_laws_are_recovered(exponent, intercept, weighted):
    x = np.array([1.0, 3.0, 10.0, 200.0])
    y = np.exp(intercept) * x**exponent
    slope = power_law_slope(x, y, y * np.array([0.1, 0.2, 0.3, 0.4]) if weighted else None)
    assert slope.value == pytest.approx(exponent, abs=1e-12)
    assert slope.intercept == pytest.approx(intercept, abs=1e-11)
    assert slope.standard_error < 1e-11


def test_slope_agrees_with_scipy():
    generator = np.random.default_rng(0)
    x, y = np.arange(1.0, 9.0), np.exp(generator.standard_normal(8))
    expected: Any = stats.linregress(np.log(x), np.log(y))
    slope = power_law_slope(x, y)
    assert slope.value == pytest.approx(expected.slope, rel=1e-12)
    assert slope.intercept == pytest.approx(expected.intercept, rel=1e-12)
    assert slope.standard_error == pytest.approx(expected.stderr, rel=1e-12)
    reach = stats.t.ppf(0.95, 6) * expected.stderr
    assert slope.interval(0.9).width == pytest.approx(2 * reach, rel=1e-12)


def test_weighted_slope_solves_the_normal_equations():
    generator = np.random.default_rng(0)
    x, y = np.arange(1.0, 9.0), np.exp(generator.standard_normal(8))
    error = y * generator.uniform(0.1, 2.0, 8)
    design = np.stack([np.ones(8), np.log(x)], axis=1) * (y / error)[:, None]
    solution, residual, *_ = np.linalg.lstsq(design, np.log(y) * y / error)
    covariance = np.linalg.inv(design.T @ design) * residual[0] / 6
    for factor in (1.0, 1e3):  # only the ratios of the errors matter
        slope = power_law_slope(x, y, factor * error)
        assert [slope.intercept, slope.value] == pytest.approx(solution, rel=1e-10)
        assert slope.standard_error == pytest.approx(math.sqrt(covariance[1, 1]), rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_slope_coverage(weighted):
    """With Gaussian errors of log y, Student's interval covers with exactly its probability."""
    generator = np.random.default_rng(4)
    x, spread = np.geomspace(1, 100, 5), np.geomspace(0.05, 0.8, 5)
    hits = []
    for noise in generator.standard_normal((4000, 5)):
        y = 3 * x**-0.5 * np.exp(0.3 * (spread if weighted else 1.0) * noise)
        hits.append(-0.5 in power_law_slope(x, y, y * spread if weighted else None).interval(0.9))
    assert_rate(hits, 0.9)


@pytest.mark.parametrize(
    ("x", "y", "y_error", "argument"),
    [([1, 2], [1, 2], None, "y"), ([1, 2, 3], [1, 2], None, "y"), ([1, 2, 3], [1, 0, 2], None, "y"),
     ([2, 2, 2], [1, 2, 3], None, "x"), ([1, -2, 3], [1, 2, 3], None, "x"),
     ([1, 2, 3], [1, 2, 3], [1, 0, 1], "y_error"), ([1, 2, 3], [1, 2, math.nan], None, "y")],
)  # fmt: skip
def test_slope_refuses(x, y, y_error, argument):
    with pytest.raises(InputError, match=f"`{argument}` argument of power_law_slope"):
        power_law_slope(x, y, y_error)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_agrees_with_scipy(confidence):
    trials = np.array([1, 7, 12, 50, 5000])
    for share in (0.0, 0.1, 0.5, 1.0):
        successes = np.round(share * trials).astype(int)
        found = wilson_interval(successes, trials, confidence)
        assert found.method == "wilson"
        for k, n, low, high in zip(successes, trials, found.low, found.high, strict=True):
            expected = stats.binomtest(int(k), int(n)).proportion_ci(confidence, "wilson")
            assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_without_trials_is_everything():
    assert (wilson_interval(0, 0).low, wilson_interval(0, 0).high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("successes", "trials", "confidence", "argument"),
    [(3, 2, 0.95, "successes"), (-1, 2, 0.95, "successes"), (1, 2, 1.0, "confidence"),
     (1, math.inf, 0.95, "trials")],
)  # fmt: skip
def test_wilson_refuses(successes, trials, confidence, argument):
    with pytest.raises(InputError, match=f"`{argument}` argument of wilson_interval"):
        wilson_interval(successes, trials, confidence)
