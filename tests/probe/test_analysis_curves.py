"""Success curves: against a slow optimizer, with and without a ceiling, and degenerate data."""

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from finetti.probe.analysis.curve_fits import LEAST_STEEPNESS, LIMIT, fit_curves
from finetti.probe.analysis.success_curve import fit_curve

SIZES = np.array([50.0, 80, 110, 140, 170, 200])
STANDARD_ERRORS = 4


def curve(midpoint, steepness, ceiling, sizes=SIZES):
    return ceiling * special.expit(steepness * (np.log(sizes) - midpoint))


def slow_fit(hits, n, ceiling=None):
    """The largest likelihood by a global search, of the formula as it is printed."""
    span, gap = np.ptp(np.log(SIZES)), np.diff(np.log(SIZES)).min()
    first, last = np.log(SIZES[[0, -1]])
    limits = [
        (first - span, last + span),
        (math.log(LEAST_STEEPNESS), math.log(2 * special.logit(LIMIT) / gap)),
    ]
    limits += [(1e-4, 1.0)] if ceiling is None else []

    def loss(point):
        p = curve(point[0], math.exp(point[1]), point[2] if ceiling is None else ceiling)
        return -(special.xlogy(hits, p) + special.xlog1py(n - hits, -p)).sum()

    return -optimize.differential_evolution(loss, limits, seed=1, tol=1e-10, maxiter=300).fun


@pytest.mark.parametrize("truth", [(4.5, 10, 1.0), (4.5, 10, 0.8), (4.7, 3, 0.9), (4.5, 40, 1.0)])
def test_likelihood_is_that_of_a_global_search(truth):
    generator = np.random.default_rng(3)
    hits = generator.binomial(12, curve(*truth), (3, len(SIZES)))
    free, given = fit_curves(SIZES, hits, np.full(6, 12)), fit_curves(SIZES, hits, [12] * 6, 0.9)
    for row, found, with_given in zip(hits, free.log_likelihood, given.log_likelihood, strict=True):
        assert found == pytest.approx(slow_fit(row, 12), abs=1e-4)
        assert with_given == pytest.approx(slow_fit(row, 12, 0.9), abs=1e-4)


def test_likelihood_is_what_the_formula_gives():
    hits = np.array([[0, 3, 7, 11, 10, 12], [1, 1, 2, 8, 8, 9]])
    fits = fit_curves(SIZES, hits, np.full(6, 12))
    p = fits.probability(np.log(SIZES))
    expected = (special.xlogy(hits, p) + special.xlog1py(12 - hits, -p)).sum(1)
    assert fits.log_likelihood == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_a_flat_success_rate_is_its_own_ceiling(rate):
    """Not the foot of a curve up to 1 that no trial has seen. 24 of 50 in every cell, say."""
    n = np.full(6, 50)
    exact = fit_curve(SIZES, np.full(6, 50 * rate), n)
    assert exact.ceiling == pytest.approx(rate, abs=1e-3)
    assert exact.p_value < 0.01
    assert "does not rise" in exact.reason
    hits = np.random.default_rng(4).binomial(50, rate, (200, 6))
    ceilings = fit_curves(SIZES, hits, n).ceiling
    # A cell is off by 1.5 standard errors now and then, and a fit follows the last ones.
    assert np.mean(ceilings > 0.97) < 0.02
    assert abs(np.median(ceilings) - rate) < 2 * math.sqrt(rate * (1 - rate) / 300)


def test_data_sets_do_not_see_each_other():
    generator = np.random.default_rng(0)
    hits = generator.binomial(12, curve(4.5, 10, 0.9), (40, len(SIZES)))
    together = fit_curves(SIZES, hits, np.full(6, 12))
    for row in range(0, 40, 8):
        alone = fit_curves(SIZES, hits[row : row + 1], np.full(6, 12))
        assert alone.log_likelihood[0] == pytest.approx(together.log_likelihood[row], abs=1e-7)
        assert alone.ceiling[0] == pytest.approx(together.ceiling[row], abs=1e-3)


def test_exact_rates_give_the_exact_curve():
    truth = (4.6, 7.0, 0.85)
    fits = fit_curves(SIZES, 1e6 * curve(*truth)[None], np.full(6, 1e6))
    found = (fits.midpoint[0], fits.steepness[0], fits.ceiling[0])
    assert found == pytest.approx(truth, rel=1e-5)
    assert fits.log_critical(0.5)[0] == pytest.approx(4.6 + special.logit(0.5 / 0.85) / 7, rel=1e-6)
    assert fits.log_critical(0.85 / 2)[0] == pytest.approx(4.6, rel=1e-6)
    assert fits.log_critical(0.9)[0] == math.inf


def test_a_ceiling_does_not_bend_the_curve():
    """Failures at any m move the plain logistic curve, and leave the one with a ceiling alone."""
    sizes = np.arange(50.0, 401, 25)
    for ceiling in (1.0, 0.9, 0.75):
        rates = curve(4.6, 10.0, ceiling, sizes)[None] * 1e5
        free = fit_curves(sizes, rates, np.full(len(sizes), 1e5))
        plain = fit_curves(sizes, rates, np.full(len(sizes), 1e5), 1.0)
        assert free.midpoint[0] == pytest.approx(4.6, abs=1e-4)
        assert free.steepness[0] == pytest.approx(10.0, rel=1e-3)
        assert (abs(plain.steepness[0] - 10) > 3) == (ceiling < 1)


def test_no_ceiling_is_a_likelihood_ratio_at_the_end_of_what_is_possible():
    """Without λ half of the ratios are 0, and p-values below α are as frequent as α."""
    sizes = np.arange(50.0, 201, 10)
    generator = np.random.default_rng(1)
    hits = generator.binomial(40, curve(4.5, 10, 1.0, sizes), (1500, len(sizes)))
    free = fit_curves(sizes, hits, np.full(len(sizes), 40))
    plain = fit_curves(sizes, hits, np.full(len(sizes), 40), 1.0)
    ratio = 2 * (free.log_likelihood - plain.log_likelihood)
    rejected = np.mean((ratio > 0) & (stats.chi2.sf(ratio, 1) / 2 < 0.05))
    assert rejected < 0.05 + STANDARD_ERRORS * math.sqrt(0.05 * 0.95 / 1500)
    assert rejected > 0.01  # it does reject
    for row in (int(np.argmin(ratio)), int(np.argmin(np.abs(ratio - 1)))):  # none, and some
        one = fit_curve(sizes, hits[row], np.full(len(sizes), 40))
        chance = stats.chi2.sf(ratio[row], 1) / 2 if ratio[row] > 0 else 1.0
        assert one.p_value == pytest.approx(chance, abs=1e-6)
    assert 0.1 < one.p_value < 0.25


def test_ceiling_interval_covers():
    """A ceiling is in the interval if its profile has not lost more than half the quantile."""
    generator = np.random.default_rng(2)
    sizes, n = np.array([50.0, 80, 120, 200, 400]), np.full(5, 30)
    hits = generator.binomial(30, curve(4.5, 8, 0.8, sizes), (600, 5))
    allowed = stats.chi2.ppf(0.95, 1) / 2
    lost = (
        fit_curves(sizes, hits, n).log_likelihood - fit_curves(sizes, hits, n, 0.8).log_likelihood
    )
    covered = np.mean(lost <= allowed)
    assert abs(covered - 0.95) < STANDARD_ERRORS * math.sqrt(0.05 * 0.95 / 600)
    for row, of_truth in zip(hits[:4], lost, strict=False):
        interval = fit_curve(sizes, row, n).ceiling_interval
        assert (0.8 in interval) == (of_truth <= allowed)
        assert interval.width < 0.4
        best = fit_curves(sizes, row[None], n).log_likelihood[0]
        for end in {interval.low, interval.high} - {0.0, 1.0}:
            profile = fit_curves(sizes, row[None], n, end).log_likelihood[0]
            assert best - profile == pytest.approx(allowed, abs=0.02)


@pytest.mark.parametrize(
    ("hits", "reason"),
    [([0, 0, 12, 12, 12, 12], "between m = 80 and 110"), ([0, 0, 0, 0, 0, 1], "still rises"),
     ([8, 7, 8, 7, 8, 7], "does not rise"), ([12, 12, 12, 12, 12, 11], "does not rise"),
     ([7, 8, 9, 10, 11, 12], "half its ceiling at the smallest")],
)  # fmt: skip
def test_what_the_data_leave_open_is_said(hits, reason):
    found = fit_curve(SIZES, hits, [12] * 6)
    assert reason in found.reason
    assert all(math.isfinite(value) for value in (found.a, found.steepness, found.ceiling))
    assert found.ceiling in found.ceiling_interval
    assert reason in str(found)


def test_falling_success_is_no_falling_curve():
    fits = fit_curves(SIZES, [[12, 10, 8, 6, 4, 2]], [12] * 6)
    assert fits.steepness[0] > 0
    assert np.all(np.diff(fits.probability(np.log(SIZES))[0]) >= 0)


def test_empty_cells_count_nothing():
    hits, n = [[0, 0, 7, 11, 10, 12]], [12, 0, 12, 12, 12, 12]
    some = fit_curves(SIZES, hits, n)
    without = fit_curves(SIZES[[0, 2, 3, 4, 5]], [[0, 7, 11, 10, 12]], [12] * 5)
    assert some.log_likelihood == pytest.approx(without.log_likelihood, abs=1e-6)
