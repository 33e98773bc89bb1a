"""Scaling laws: known parameters come back, the right law is chosen, what is censored is said."""

import json
import math

import numpy as np
import pytest
from scipy import optimize

from finetti.core.errors import InputError
from finetti.core.plain_data import to_plain
from finetti.core.statistics.intervals import Interval
from finetti.probe.analysis.critical_size import CriticalSize
from finetti.probe.analysis.scaling_laws import fit_law, fit_laws

LENGTHS = np.array([100.0, 200, 400, 800])
MANY = 50 * 2.0 ** np.arange(7)
STANDARD_ERRORS = 4
TRUE = {"logarithmic": lambda T: 24 * np.log(T) - 25, "power": lambda T: 9 * T**0.5}
PARAMETERS = {"logarithmic": (-25, 24), "power": (9, 0.5)}


def measured(log_m, error, n_resamples, rng, censored=""):
    """A critical size as the bootstrap would leave it."""
    drawn = log_m + error * rng.standard_normal(n_resamples)
    low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
    value, why = (None, "not reached up to m_max = 200") if censored else (math.exp(log_m), "")
    interval = Interval(low, high, 0.95, "bootstrap")
    return CriticalSize(value, interval, 0.5, censored, why, 10.0, 1e4, drawn)


def simulated(name, error, rng, lengths=LENGTHS, n_resamples=200):
    return {
        int(T): measured(np.log(TRUE[name](T)) + error * noise, error, n_resamples, rng)
        for T, noise in zip(lengths, rng.standard_normal(len(lengths)), strict=True)
    }


@pytest.mark.parametrize("name", TRUE)
def test_exact_laws_come_back(name):
    found = fit_law(
        name, LENGTHS, np.log(TRUE[name](LENGTHS))[None], np.array([0.1, 0.2, 0.1, 0.3])
    )
    assert found[0] == pytest.approx(PARAMETERS[name], rel=1e-6)


@pytest.mark.parametrize("name", TRUE)
def test_fits_are_those_of_a_slow_optimizer(name):
    """Weighted least squares of log m, also where a line through the points would be negative."""
    rng = np.random.default_rng(0)
    error = np.array([0.1, 0.05, 0.2, 0.1])
    log_m = np.log([3.0, 60, 130, 170]) + 0.3 * rng.standard_normal((5, 4))

    def law(parameters):
        first, second = parameters
        line = first + second * np.log(LENGTHS / 300)
        return np.log(np.maximum(line, 1e-9)) if name == "logarithmic" else line

    for row, found in zip(log_m, fit_law(name, LENGTHS, log_m, error), strict=True):
        start = (100.0, 40.0) if name == "logarithmic" else (4.5, 0.3)
        slow = optimize.minimize(
            lambda p, row=row: (((row - law(p)) / error) ** 2).sum(),
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000},
        )
        if name == "power":
            mine = (math.log(found[0]) + found[1] * math.log(300), found[1])
        else:
            mine = (found[0] + found[1] * math.log(300), found[1])
        assert (((row - law(mine)) / error) ** 2).sum() <= slow.fun * (1 + 1e-6)


@pytest.mark.parametrize("name", TRUE)
def test_the_right_law_is_chosen_and_its_parameters_are_covered(name):
    """Over 60 studies: parameters and extrapolation covered up to 4 standard errors; AIC and the
    held-out T choose the true law."""
    rng = np.random.default_rng(1)
    n, hits = 60, {"first": 0, "second": 0, "far": 0, "held": 0}
    chosen = better = fits = 0
    for _ in range(n):
        laws = fit_laws(simulated(name, 0.03, rng, MANY))
        true = laws.laws[name]
        first, second = true.interval()
        hits["first"] += PARAMETERS[name][0] in first
        hits["second"] += PARAMETERS[name][1] in second
        value, interval = true.predict(10_000)
        assert value in interval
        hits["far"] += float(TRUE[name](10_000)) in interval
        held = laws.held_out[name]
        hits["held"] += held.observed in held.interval
        chosen += laws.preferred == name
        other = next(each for each in TRUE if each != name)
        misses = [abs(math.log(o.observed / o.predicted)) for o in (held, laws.held_out[other])]
        better += misses[0] < misses[1]
        fits += true.fit_p_value > 0.05
    least = 0.95 - STANDARD_ERRORS * math.sqrt(0.95 * 0.05 / n)
    assert {key: count / n > least for key, count in hits.items()} == dict.fromkeys(hits, True)
    assert fits / n > least
    assert chosen / n > 0.9
    assert better / n > 0.75


def test_aic_weights():
    laws = fit_laws(simulated("logarithmic", 0.02, np.random.default_rng(0)))
    weights = laws.aic_weights
    gap = laws.laws["power"].aic - laws.laws["logarithmic"].aic
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["logarithmic"] / weights["power"] == pytest.approx(math.exp(gap / 2))
    chi = {name: law.chi_square for name, law in laws.laws.items()}
    assert gap == pytest.approx(chi["power"] - chi["logarithmic"])


def test_weights_follow_the_errors():
    """A point that is hardly known hardly moves the law."""
    rng = np.random.default_rng(0)
    sizes = {int(T): measured(np.log(TRUE["power"](T)), 0.02, 200, rng) for T in LENGTHS}
    sizes[400] = measured(np.log(TRUE["power"](400)) + 0.5, 2.0, 200, rng)
    assert fit_laws(sizes).laws["power"].parameters[1] == pytest.approx(0.5, abs=0.01)


def test_censored_sizes_are_left_out_and_said():
    rng = np.random.default_rng(0)
    sizes = simulated("logarithmic", 0.02, rng)
    sizes[1600] = measured(5.3, 0.1, 200, rng, censored="right")
    laws = fit_laws(sizes)
    assert laws.laws["power"] == fit_laws({T: sizes[T] for T in (100, 200, 400, 800)}).laws["power"]
    assert list(laws.points) == [100, 200, 400, 800]
    note = laws.notes[0]
    assert note.startswith("T = 1600 is left out: not reached up to m_max = 200; m = a + b·log T")
    assert f"gives {laws.predict(1600)['power'][0]:.0f}" in note
    assert next(iter(laws.held_out.values())).context_length == 800
    json.dumps(to_plain(laws), allow_nan=False)
    assert "T = 1600 is left out" in str(laws)


def test_few_points():
    rng = np.random.default_rng(0)
    two = fit_laws(simulated("power", 0.02, rng, LENGTHS[:2]))
    assert two.preferred is None
    assert not two.held_out
    assert two.laws["power"].fit_p_value is None
    assert "Two points" in two.notes[0]
    one = fit_laws(simulated("power", 0.02, rng, LENGTHS[:1]))
    assert not one.laws
    assert one.predict(100) == {}
    assert "two context lengths" in one.notes[0]
    assert "two context lengths" in str(one)
    json.dumps([to_plain(two), to_plain(one)], allow_nan=False)


def test_when_no_law_fits_it_is_said():
    rng = np.random.default_rng(0)
    odd = {T: measured(math.log(m), 0.02, 200, rng)
           for T, m in zip((100, 200, 400, 800), (80, 160, 90, 200), strict=True)}  # fmt: skip
    assert "Neither law fits" in fit_laws(odd).notes[0]


@pytest.mark.parametrize("length", [0.5, math.nan])
def test_prediction_refuses(length):
    laws = fit_laws(simulated("power", 0.02, np.random.default_rng(0)))
    with pytest.raises(InputError, match="`context_length`"):
        laws.predict(length)
