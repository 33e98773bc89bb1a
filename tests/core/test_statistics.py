"""Intervals: agreement with SciPy and enumeration, coverage by simulation, degenerate data."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from finetti.core.errors import InputError
from finetti.core.statistics import Interval, bootstrap, power_law_slope, wilson

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


@untimed
@given(st.integers(1, 10**6), st.data(), st.floats(0.5, 0.9999))
def test_wilson_agrees_with_scipy(trials, data, confidence):
    successes = data.draw(st.integers(0, trials))
    expected = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    interval = wilson(successes, trials, confidence)
    assert interval.low == pytest.approx(expected.low, rel=1e-9, abs=1e-14)
    assert interval.high == pytest.approx(expected.high, rel=1e-12)


@untimed
@given(st.integers(1, 10**12), st.data(), st.floats(0.5, 0.9999))
def test_wilson_ends_solve_the_score_equation(trials, data, confidence):
    successes = data.draw(st.integers(1, min(trials, 1000)))  # rare: where digits could be lost
    z = stats.norm.ppf(0.5 + confidence / 2)
    interval = wilson(successes, trials, confidence)
    for p in (interval.low, interval.high):
        if p < 1:
            score = (successes - trials * p) ** 2 / (trials * p * (1 - p))
            assert score == pytest.approx(z**2, rel=1e-9)


def test_wilson_at_the_ends():
    z = stats.norm.ppf(0.975)
    for trials in (1, 7, 10**15):
        none, every = wilson(0, trials), wilson(trials, trials)
        assert (none.low, every.high) == (0.0, 1.0)
        assert none.high == pytest.approx(z**2 / (trials + z**2), rel=1e-12)
        assert every.low == pytest.approx(trials / (trials + z**2), rel=1e-12)


def test_wilson_is_elementwise_and_symmetric():
    successes = np.arange(11)
    interval = wilson(successes, 10)
    assert interval.low[3] == wilson(3, 10).low
    assert interval.low == pytest.approx(1 - interval.high[::-1], abs=1e-15)
    assert (np.diff(interval.low) > 0).all()
    assert wilson(successes[:, None], np.array([10, 20])).high.shape == (11, 2)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5])
def test_wilson_coverage(p):
    trials = 40
    counts = np.arange(trials + 1)
    covered = wilson(counts, trials).contains(p)
    exact = stats.binom.pmf(counts, trials, p) @ covered
    assert 0.9 < exact < 0.99
    draws = np.random.default_rng(1).binomial(trials, p, size=20_000)
    assert_rate(wilson(draws, trials).contains(p), exact)


@pytest.mark.parametrize(
    ("successes", "trials", "argument"),
    [(0, 0, "trials"), ([1, 0], [2, 0], "trials"), (3, 2, "successes"), (-1, 2, "successes"),
     (0.5, 2, "successes"), (1, math.inf, "trials")],
)  # fmt: skip
def test_wilson_refuses(successes, trials, argument):
    with pytest.raises(InputError, match=f"`{argument}` argument of wilson"):
        wilson(successes, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, math.nan])
def test_confidence_is_checked(confidence):
    with pytest.raises(InputError, match="`confidence`"):
        wilson(1, 2, confidence)
    with pytest.raises(InputError, match="`confidence`"):
        bootstrap([1.0, 2.0], np.mean, confidence, seed=0)
    with pytest.raises(InputError, match="`confidence`"):
        power_law_slope([1, 2, 3], [1, 2, 4]).interval(confidence)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_bootstrap_of_a_mean_is_nearly_normal(method):
    sample = np.random.default_rng(0).standard_normal(400)
    interval = bootstrap(sample, np.mean, n_resamples=20_000, seed=0, method=method)
    reach = stats.norm.ppf(0.975) * sample.std() / 20
    # A quantile of B draws has the standard error √(α(1−α)/B)/density.
    error = math.sqrt(0.025 * 0.975 / 20_000) / stats.norm.pdf(1.96) * sample.std() / 20
    tolerance = STANDARD_ERRORS * error + reach / 100  # and the O(1/√n) skewness of the sample
    assert interval.low == pytest.approx(sample.mean() - reach, abs=tolerance)
    assert interval.high == pytest.approx(sample.mean() + reach, abs=tolerance)


def test_bootstrap_enumerates_a_tiny_sample():
    """Two observations have three resampled means, with probabilities 1/4, 1/2, 1/4."""
    for confidence, expected in ((0.9, (0.0, 1.0)), (0.3, (0.5, 0.5))):
        interval = bootstrap([0.0, 1.0], np.mean, confidence, seed=3)
        assert (interval.low, interval.high) == expected


def test_bootstrap_is_determined_by_its_seed():
    sample = np.random.default_rng(0).exponential(size=30)
    first = bootstrap(sample, np.mean, seed=5)
    assert first == bootstrap(sample, np.mean, seed=5)
    assert first == bootstrap(sample, lambda values: values.mean(), seed=5)  # without ``axis``
    assert first != bootstrap(sample, np.mean, seed=6)


def test_bca_corrects_skewness():
    sample = np.random.default_rng(0).lognormal(size=40)
    plain = bootstrap(sample, np.mean, seed=0)
    corrected = bootstrap(sample, np.mean, seed=0, method="bca")
    assert corrected.low > plain.low
    assert corrected.high > plain.high


def test_bootstrap_coverage():
    generator = np.random.default_rng(2)
    hits = []
    for seed in range(400):
        interval = bootstrap(generator.standard_normal(60), np.mean, n_resamples=500, seed=seed)
        hits.append(0.0 in interval)
    # The percentile interval is z·s√((n−1)/n)/√n wide: its coverage is Student's, not 0.95.
    expected = 1 - 2 * stats.t.sf(stats.norm.ppf(0.975) * math.sqrt(59 / 60), df=59)
    assert_rate(hits, expected)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_constant_samples_have_width_zero(method):
    for sample, statistic in (([0.1] * 7, np.mean), ([2.0, 3.0], lambda values: 5.0)):
        interval = bootstrap(sample, statistic, seed=0, method=method)
        assert interval.width == 0.0
        assert interval.low == statistic(sample)
        assert interval.method == f"bootstrap {method}"


def test_undefined_bca_falls_back_and_says_so():
    sample = [1.0, 1.0, 1.0, 2.0]  # every leave-one-out median is 1: no acceleration
    interval = bootstrap(sample, np.median, seed=0, method="bca")
    plain = bootstrap(sample, np.median, seed=0)
    assert (interval.low, interval.high) == (plain.low, plain.high)
    assert "BCa undefined" in interval.method


def test_bootstrap_refuses():
    for sample in ([1.0], [], [[1.0, 2.0]], [1.0, math.nan]):
        with pytest.raises(InputError, match="`sample` argument of bootstrap"):
            bootstrap(sample, np.mean, seed=0)
    with pytest.raises(InputError, match="`statistic` argument of bootstrap"):
        bootstrap([1.0, 2.0], lambda values: math.nan if values[0] == values[1] else 1.0, seed=0)
    with pytest.raises(InputError, match="`method` argument of bootstrap"):
        bootstrap([1.0, 2.0], np.mean, seed=0, method="normal")  # pyright: ignore


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
