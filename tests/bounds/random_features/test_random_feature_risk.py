"""Paper R's classes: from settings, from modules, at any size; and what they refuse."""

import math
from dataclasses import replace

import numpy as np
import pytest

from finetti.bounds import BoundSettings, Sample, sensitivities
from finetti.bounds.random_features import (
    AttentionNorm,
    BiasedNorm,
    BiasedRisk,
    Component,
    CorrelationTarget,
    NetworkNorm,
    RandomFeatureClass,
    RandomFeatureRisk,
    Target,
)
from finetti.core.errors import InputError

SAMPLE = Sample(10**6, 16, delta=0.02)
RISK = RandomFeatureRisk(RandomFeatureClass(16, 10**7, Target.key_power(2)))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "1"])
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


@pytest.mark.parametrize("wrong", [[math.nan], [0.0], 3.0])
def test_coefficients_are_finite_and_not_all_zero(wrong):
    norms = {"target": "correlation_series", "coefficients": wrong}
    for make in (
        lambda: Target.correlation_series(wrong, 4),
        lambda: CorrelationTarget(wrong),
        lambda: Target.from_settings(BoundSettings(norms=norms)),
    ):
        with pytest.raises(InputError, match=r"`coefficients` .* finite numbers, not all 0"):
            make()


def test_of_a_vector_of_length_zero_the_empty_product_is_left():
    nothing, some = (AttentionNorm(Target.key_power(0, norm)) for norm in (0.0, 5.0))
    assert nothing.evaluate(SAMPLE).value == pytest.approx(some.evaluate(SAMPLE).value)
    assert AttentionNorm(Target.key_power(2, 0.0)).evaluate(SAMPLE).value == 0.0


@pytest.mark.parametrize("bound", [AttentionNorm, NetworkNorm])
def test_a_longer_vector_counts_with_its_degree(bound):
    found = sensitivities(bound(Target.key_power(3, 0.7)), SAMPLE)
    assert found["target.vector_scale"].exponent == pytest.approx(6.0, rel=1e-9)
    assert found["target.scale"].exponent == pytest.approx(2.0, rel=1e-9)
    names = [row.field for row in sensitivities(bound(Target.correlation_power(3, 2)), SAMPLE)]
    assert "target.vector_scale" not in names


def test_any_number_of_samples_tokens_and_degrees():
    assert RISK.heads_needed(0.5, Sample(10**400, 16), 1.0).count > 20
    long, shorter = (
        NetworkNorm(Target.key_power(2)).evaluate(Sample(10, length)).log_value
        for length in (10**400, 10**399)
    )
    assert long - shorter == pytest.approx(math.log(10), rel=1e-6)
    target = Target.correlation_times_power(200, 300, 10**6, 1e3)
    for bound in (
        AttentionNorm(target),
        NetworkNorm(target),
        AttentionNorm(target, form="printed"),
        RandomFeatureRisk(RandomFeatureClass(10**6, 10**12, Target.key_power(1000, 1e3))),
    ):
        found = bound.evaluate(Sample(10**9, 10**6))
        assert math.isfinite(found.log_value)
        assert str(found)


@pytest.mark.parametrize("gap", [1e-3, 1e-320])
def test_gaps_that_nothing_reaches_are_refused_in_words(gap):
    with pytest.raises(InputError, match=r"stays at 0\.\d+ or above\. Take more heads"):
        RISK.samples_needed(gap, SAMPLE, constant=1.0)
    with pytest.raises(InputError, match=r"stays at 0\.\d+ or above\. Take more samples"):
        RISK.heads_needed(gap, SAMPLE, constant=1.0)


def test_heads_needed_start_above_1_over_delta():
    assert RISK.heads_needed(1e6, SAMPLE, constant=1.0).count == 51
    found = RISK.heads_needed(0.5, SAMPLE, 1.0, delta=0.01)
    assert found == RISK.heads_needed(0.5, replace(SAMPLE, delta=0.01), 1.0)
    assert found.count > RISK.heads_needed(0.5, SAMPLE, 1.0).count
    assert RISK.heads_needed(0.5, Sample(10**9, 16, delta=1e-320), 1.0).log_value > 700


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_trained_values_are_measured(outputs):
    values = np.random.default_rng(1).normal(size=(50, 4, *outputs))
    features = RandomFeatureClass.from_arrays(values)
    assert (features.dimension, features.n_heads) == (3, 50)
    assert features.squared_norm == pytest.approx(50 * np.sum(values**2), rel=1e-6)


def test_settings_by_name_give_the_same_bound():
    def described(kind, **norms):
        return kind.from_settings(BoundSettings(width=8, n_heads=500, norms=norms))

    power = {"target": "correlation_times_power", "correlation_degree": 2, "degree": 1}
    target = Target.correlation_times_power(2, 1, 8)
    expected = RandomFeatureRisk(RandomFeatureClass(8, 500, target))
    assert described(RandomFeatureRisk, **power) == expected
    biased = described(BiasedRisk, coefficients=[1])
    assert biased == BiasedRisk(8, 500, CorrelationTarget((1.0,)))
    assert described(RandomFeatureRisk, squared_norm=2.0).features.squared_norm == 2.0


NORMS = BoundSettings(norms={"squared_norm": 1.0, "degree": 3})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RandomFeatureClass.from_arrays(np.zeros((4, 3))), "All values are zero"),
        (lambda: RandomFeatureClass.from_arrays(np.ones(3)), "`values`"),
        (lambda: RISK.with_heads(50).evaluate(SAMPLE), "H > 1/δ"),
        (lambda: RISK.evaluate(replace(SAMPLE, n_samples=5)), r"n > log\(dH\)"),
        (lambda: RISK.heads_needed(0.1, replace(SAMPLE, n_samples=5), 1.0), "more samples"),
        (lambda: RandomFeatureClass(4, 10), "a target or a squared_norm"),
        (lambda: Target(()), "`components`"),
        (lambda: Target.from_tensors({(1, 1): np.ones(3)}), "`tensors`"),
        (lambda: Target.from_tensors({(1, 1): np.ones((2, 3))}), "`tensor`"),
        (lambda: Target.key_power(-1), "`degree`"),
        (lambda: Component(1, 0.5, 0.0, 0.0), "`key_degree`"),
        (lambda: BiasedNorm(CorrelationTarget(), terms=61), "`terms`.*at most 60"),
        (lambda: BiasedNorm(CorrelationTarget((1.0,)), terms=0), "`terms`"),
        (
            lambda: Target.from_settings(BoundSettings(norms={"coefficients": [1.0]})),
            "`target`.*one that has `coefficients`.*'key_power'",
        ),
        (lambda: RandomFeatureClass.from_settings(NORMS), "`squared_norm`.*left out beside"),
        (lambda: AttentionNorm.from_settings(BoundSettings(norms={"target": "cube"})), "`target`"),
    ],
)
def test_impossible_targets_and_sizes_are_refused_by_name(call, words):
    with pytest.raises(InputError, match=words):
        call()
