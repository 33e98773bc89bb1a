"""What paper R's bounds refuse by name, and sizes at which a float would overflow."""

import math
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest

from finetti.bounds import BoundSettings, Sample
from finetti.bounds.random_features import (
    AttentionAdvantage,
    AttentionNorm,
    BiasedAdvantage,
    BiasedNorm,
    BiasedRisk,
    Component,
    CorrelationTarget,
    NetworkNorm,
    RandomFeatureClass,
    RandomFeatureRisk,
    Target,
)
from finetti.core.errors import InputError, UnsupportedError

SAMPLE = Sample(n_samples=10**6, context_length=16)
RISK = RandomFeatureRisk(RandomFeatureClass(16, 10**7, Target.key_power(2)))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, "1", True])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: Target.key_power(2, x),
        lambda x: Target.key_power(0, x),
        lambda x: Target.correlation_times_power(1, 1, 4, x),
        lambda x: Target.correlation_series((0.0, 1.0), 4, x),
    ],
)
def test_norms_of_targets_are_finite_numbers(make, wrong):
    with pytest.raises(InputError, match=r"norms?` .* a finite number ≥ 0"):
        make(wrong)


@pytest.mark.parametrize("wrong", [[math.nan], [math.inf, 1.0], [0.0], ["1"], [True], 3.0, None])
def test_coefficients_are_finite_and_not_all_zero(wrong):
    for make in (
        lambda: Target.correlation_series(wrong, 4),
        lambda: CorrelationTarget(wrong),
        lambda: Target.from_settings(
            BoundSettings(norms={"target": "correlation_series", "coefficients": wrong or 0})
        ),
    ):
        with pytest.raises(InputError, match=r"`coefficients` .* finite numbers, not all 0"):
            make()


def test_a_vector_of_length_zero_leaves_the_empty_product():
    assert AttentionNorm(Target.key_power(0, 0.0)) == AttentionNorm(Target.key_power(0, 0.0))
    assert AttentionNorm(Target.key_power(0, 0.0)).evaluate(SAMPLE).value == pytest.approx(
        AttentionNorm(Target.key_power(0, 5.0)).evaluate(SAMPLE).value
    )
    assert AttentionNorm(Target.key_power(2, 0.0)).evaluate(SAMPLE).value == 0.0


def test_a_zero_target_has_no_ratio_of_sample_sizes():
    for bound, target in (
        (AttentionAdvantage, Target.key_power(2, 0.0)),
        (AttentionAdvantage, Target((Component(0, 2, 0.0, 0.0),), scale=0.0)),
        (BiasedAdvantage, CorrelationTarget((0.0, 1.0), target_norm=0.0)),
    ):
        with pytest.raises(UnsupportedError, match=r"R-ratio-.* assumes a target that is not zero"):
            bound(target).evaluate(SAMPLE)
    # Of a constant only the empty product is left of a vector of length 0.
    assert math.isfinite(AttentionAdvantage(Target.key_power(0, 0.0)).evaluate(SAMPLE).log_value)


@pytest.mark.parametrize("bound", [AttentionNorm, NetworkNorm])
def test_a_longer_vector_counts_with_its_degree(bound):
    found = bound(Target.key_power(3, 0.7)).sensitivity(SAMPLE)
    assert found["target.vector_scale"].exponent == pytest.approx(6.0, rel=1e-9)
    assert found["target.scale"].exponent == pytest.approx(2.0, rel=1e-9)
    names = [row.field for row in bound(Target.correlation_power(3, 2)).sensitivity(SAMPLE)]
    assert "target.vector_scale" not in names


def test_whole_numbers_may_be_floats():
    target = CorrelationTarget((0.0, 1.0))
    assert BiasedNorm(target, terms=2.0) == BiasedNorm(target, terms=2)
    settings = BoundSettings(norms={"terms": 2.0})
    assert isinstance(BiasedNorm.from_settings(settings).evaluate(SAMPLE).value, float)
    assert BiasedRisk(4.0, 1e4, target).sizes == (4, 10_000)


@pytest.mark.parametrize("terms", [1, 20, 60])
def test_many_terms_of_the_exponential_agree_with_exact_arithmetic(terms):
    """t^n = Σ_k n!/(2^k k! (n − 2k)!) He_{n−2k}, in rational numbers."""
    g = {}
    for power, a in ((1, mp.mpf(1)), (3, mp.mpf(-0.3))):
        for j in range(terms + 1):
            n = power + 2 * j
            g[n] = g.get(n, mp.mpf(0)) + a / (mp.mpf(2) ** j * mp.factorial(j))
    total = mp.mpf(0)
    with mp.workdps(60):
        factorial = [mp.factorial(n) for n in range(2 * terms + 6)]
        numerators = {n: g[n] * factorial[n] for n in g}
        inverses = [1 / (2**k * factorial[k]) for k in range(terms + 2)]
        for m in range(1, 2 * terms + 4, 2):
            powers = range(m, 2 * terms + 4, 2)
            parts = mp.fdot((numerators[n], inverses[(n - m) // 2]) for n in powers)
            coefficient = parts / factorial[m]
            total += coefficient**2 * factorial[m + 2] * mp.mpf(4) ** (m + 2) / (m + 3)
        expected = float(mp.log(2 * mp.pi * total))
    found = BiasedNorm(CorrelationTarget((0.0, 1.0, 0.0, -0.3)), terms=terms).evaluate(SAMPLE)
    assert found.log_value == pytest.approx(expected, rel=1e-9)
    assert "nan" not in found.notes[0]


def test_any_number_of_samples_and_tokens():
    huge = Sample(10**400, 16)
    assert RISK.heads_needed(0.5, huge, 1.0).count > 20
    long = NetworkNorm(Target.key_power(2)).evaluate(Sample(10, 10**400))
    shorter = NetworkNorm(Target.key_power(2)).evaluate(Sample(10, 10**399))
    assert long.log_value - shorter.log_value == pytest.approx(math.log(10), rel=1e-6)


@pytest.mark.parametrize("gap", [1e-300, 1e-320])
def test_gaps_that_nothing_reaches_are_refused_in_words(gap):
    with pytest.raises(InputError, match=r"stays at 0\.\d+ or above\. Take more heads"):
        RISK.samples_needed(gap, SAMPLE, constant=1.0)
    with pytest.raises(InputError, match=r"stays at 0\.\d+ or above\. Take more samples"):
        RISK.heads_needed(gap, SAMPLE, constant=1.0)


def test_heads_needed_for_another_delta():
    stricter = Sample(10**6, 16, delta=0.01)
    found = RISK.heads_needed(0.5, SAMPLE, 1.0, delta=0.01)
    assert found == RISK.heads_needed(0.5, stricter, 1.0)
    assert found.count > RISK.heads_needed(0.5, SAMPLE, 1.0).count
    assert RISK.heads_needed(0.5, Sample(10**9, 16, delta=1e-320), 1.0).log_value > 700


def test_a_module_before_training_has_no_norm():
    fresh = SimpleNamespace(values=np.zeros((4, 3)), activation="relu", mean_weights=None)
    with pytest.raises(InputError, match="All values of this module are zero"):
        RandomFeatureClass.from_weights(fresh)
