"""The excess-risk theorems: recomputed, monotone, inverted, measured, refused."""

import math
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetti.attention import RandomFeatureAttention, RandomFeatureMLP
from finetti.bounds import BoundSettings
from finetti.bounds.random_features import (
    AttentionNorm,
    BiasedNorm,
    BiasedRisk,
    Component,
    CorrelationTarget,
    RandomFeatureClass,
    RandomFeatureRisk,
    Target,
)
from finetti.bounds.sample import Sample
from finetti.core.errors import InputError, UnsupportedError


@pytest.fixture(autouse=True)
def enough_digits():
    with mp.workdps(40):
        yield


SAMPLE = Sample(10**6, 16, delta=0.02)
RISK = RandomFeatureRisk(RandomFeatureClass(16, 10**7, Target.key_power(2)))
BIASED = BiasedRisk(16, 10**9, CorrelationTarget((0.0, 1.0), 0.5))


def rates(d, heads, sample):
    n, length, delta = sample.n_samples, sample.context_length, mp.mpf(sample.delta)
    logs = mp.log(mp.mpf(d) * heads) * mp.log(mp.mpf(n) * length * heads)
    first = mp.sqrt((logs + mp.log(1 / delta)) / n)
    return first, mp.sqrt((mp.mpf(d) ** 2 + mp.log(heads)) / (delta * heads))


@pytest.mark.parametrize("form", ["derived", "printed"])
def test_the_theorem_again(form):
    bound = replace(RISK, form=form)
    b = mp.exp(AttentionNorm(Target.key_power(2), form=form).evaluate(SAMPLE).log_value)
    expected = mp.sqrt(b) * sum(rates(16, 10**7, SAMPLE))
    assert abs(bound.evaluate(SAMPLE).log_value - mp.log(expected)) < 1e-12
    found = bound.evaluate(SAMPLE)
    assert (found.kind, found.vacuous) == ("scaling", None)


@pytest.mark.parametrize("coefficients", [(0.0, 1.0), (0.3, -1.1, 0.4, 0.8)])
def test_the_biased_theorem_again(coefficients):
    first, second = rates(16, 10**9, SAMPLE)
    bound = replace(BIASED, target=CorrelationTarget(coefficients, 0.5))
    largest = np.abs(np.polynomial.polynomial.polyval(np.linspace(-1, 1, 20_001), coefficients))
    options = []
    for terms in range(1, 12):
        norm = mp.exp(BiasedNorm(bound.target, terms).evaluate(SAMPLE).log_value)
        x = mp.mpf(1) / 2
        tail = 1 - mp.exp(-x) * sum(x**j / mp.factorial(j) for j in range(terms + 1))
        options.append(mp.sqrt(norm) * (first + second) + tail * largest.max() / 2)
    assert abs(bound.evaluate(SAMPLE).log_value - mp.log(min(options))) < 1e-8


def test_the_biased_norm_is_free_of_the_dimension_up_to_the_heads():
    values = [
        replace(BIASED, dimension=d, n_heads=10**30).evaluate(SAMPLE).terms[0].log_value
        for d in (16, 10**4)
    ]
    assert values[1] - values[0] < 0.05  # log(dM) alone
    plain = [
        RandomFeatureRisk(RandomFeatureClass(d, 10**30, Target.correlation_times_power(1, 1, d)))
        .evaluate(SAMPLE)
        .log_value
        for d in (16, 10**4)
    ]
    assert plain[1] - plain[0] > 3


@settings(max_examples=40)
@given(
    st.integers(1, 50),
    st.integers(100, 10**12),
    st.floats(1e-3, 1e6),
    st.integers(100, 10**15),
    st.floats(1.01, 100),
)
def test_monotone_in_norm_samples_and_certainty(d, heads, norm, n, factor):
    features = RandomFeatureClass(d, heads, squared_norm=norm)
    sample = Sample(n, 8, delta=0.5)
    bound = RandomFeatureRisk(features)
    value = bound.evaluate(sample).log_value
    larger = RandomFeatureRisk(replace(features, squared_norm=factor * norm))
    assert larger.evaluate(sample).log_value == pytest.approx(value + math.log(factor) / 2)
    assert bound.evaluate(replace(sample, n_samples=2 * n)).log_value < value
    assert bound.evaluate(replace(sample, delta=0.3)).log_value > value
    assert bound.evaluate(replace(sample, context_length=80)).log_value > value
    halved = bound.evaluate(replace(sample, n_samples=4 * n)).terms[0].log_value
    drop = bound.evaluate(sample).terms[0].log_value - halved
    logs = math.log(d * heads) * math.log(4)
    assert math.log(2) - logs / 2 <= drop <= math.log(2) + 1e-12  # ×1/2 up to its logarithm


def test_the_fewest_heads_are_those_of_the_theorem():
    assert RISK.heads_needed(1e6, SAMPLE, constant=1.0).count == 51  # the least M > 1/δ


def test_heads_follow_the_samples_like_d_squared_n():
    """M ≳ d²n/δ heads suffice: eight times the dimension asks for about 64 times the heads."""
    counts, many = [], replace(SAMPLE, n_samples=10**12)
    for d in (1_000, 8_000):
        features = RandomFeatureClass(d, 100, squared_norm=1.0)
        counts.append(RandomFeatureRisk(features).heads_needed(0.05, many, 1.0).log_value)
    assert (counts[1] - counts[0]) / math.log(8) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_a_trained_module_is_measured(outputs):
    module = RandomFeatureAttention(jax.random.key(0), 50, dimension=3)
    values = jax.random.normal(jax.random.key(1), (50, 4, *outputs))
    features = RandomFeatureClass.from_weights(module.with_values(values))
    assert (features.dimension, features.n_heads) == (3, 50)
    assert features.squared_norm == pytest.approx(50 * float(jnp.sum(values**2)), rel=1e-6)
    bound = RandomFeatureRisk.from_weights(module.with_values(values))
    assert bound.evaluate(Sample(1000, 5, delta=0.1)).value > 0


def test_the_norm_of_a_ridge_fit_is_at_most_the_sharp_norm():
    """Interpolating an average with many heads needs no more than B: M Σ‖v_m‖² ≤ B."""
    tokens = jax.random.normal(jax.random.key(2), (40, 4, 3))
    tokens = tokens / jnp.linalg.norm(tokens, axis=-1, keepdims=True)
    query, keys = tokens[:, 0], tokens[:, 1:]
    module = RandomFeatureAttention(jax.random.key(3), 1000, dimension=3)
    features = module.features(query, keys)
    target = jnp.mean(keys[:, :, 0] ** 2, axis=1)
    gram = features @ features.T
    fit = features.T @ jnp.linalg.solve(gram + 1e-9 * jnp.eye(40), target)
    trained = module.with_values((fit / 1000**0.5).reshape(1000, 4))
    measured = RandomFeatureClass.from_weights(trained).squared_norm
    sharp = AttentionNorm(Target.key_power(2)).evaluate(Sample(40, 3)).value
    assert measured is not None
    assert 0.2 * sharp < measured < 1.2 * sharp  # a kernel of 1000 heads is 3 % off


def test_settings_by_name():
    norms = {"target": "correlation_times_power", "correlation_degree": 2, "degree": 1}
    found = RandomFeatureRisk.from_settings(BoundSettings(width=8, n_heads=500, norms=norms))
    target = Target.correlation_times_power(2, 1, 8)
    assert found == RandomFeatureRisk(RandomFeatureClass(8, 500, target))
    biased = BiasedRisk.from_settings(
        BoundSettings(width=8, n_heads=500, norms={"coefficients": [1]})
    )
    assert biased == BiasedRisk(8, 500, CorrelationTarget((1.0,)))
    given_norm = RandomFeatureRisk.from_settings(
        BoundSettings(n_heads=99, norms={"squared_norm": 2.0})
    )
    assert given_norm.features.squared_norm == 2.0


def test_sizes_of_any_kind_stay_finite():
    bound = RandomFeatureRisk(RandomFeatureClass(10**6, 10**12, Target.key_power(1000, 1e3)))
    found = bound.evaluate(Sample(10**9, 10**6))
    assert math.isfinite(found.log_value)
    assert str(found)


MODULE = RandomFeatureAttention(jax.random.key(0), 5, dimension=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RISK.samples_needed(0.1, SAMPLE), "scaling.*constant"),
        (lambda: RISK.heads_needed(0.1, SAMPLE), "scaling.*constant"),
        (lambda: BiasedNorm(CorrelationTarget((1.0,)), form="printed"), "no printed form"),
        (
            lambda: RandomFeatureClass.from_weights(
                RandomFeatureMLP(jax.random.key(0), 5, 2, context_length=3)
            ),
            "Nearest bound: S-cor-4.4",
        ),
        (
            lambda: RandomFeatureClass.from_weights(
                RandomFeatureAttention(jax.random.key(0), 5, 2, activation="softmax")
            ),
            "ReLU.*Nearest bound: S-cor-4.4",
        ),
        (
            lambda: RandomFeatureClass.from_weights(
                RandomFeatureAttention(jax.random.key(0), 5, 2, mean_weights="identity")
            ),
            "mean zero.*Nearest bound: R-thm-biased-risk",
        ),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(call, words):
    with pytest.raises(UnsupportedError, match=f"(?s){words}"):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RISK.with_heads(50).evaluate(SAMPLE), "H > 1/δ"),
        (lambda: RISK.evaluate(replace(SAMPLE, n_samples=5)), r"n > log\(dH\)"),
        (lambda: RISK.samples_needed(1e-3, SAMPLE, 1.0), "Take more heads"),
        (lambda: RISK.heads_needed(1e-3, SAMPLE, 1.0), "more samples"),
        (lambda: RISK.heads_needed(0.1, replace(SAMPLE, n_samples=5), 1.0), "more samples"),
        (lambda: RandomFeatureClass(4, 10), "a target or a squared_norm"),
        (lambda: Target(()), "`components`"),
        (lambda: Target.from_tensors({(1, 1): np.ones(3)}), "`tensors`"),
        (lambda: Target.from_tensors({(1, 1): np.ones((2, 3))}), "`tensor`"),
        (lambda: Target.key_power(-1), "`degree`"),
        (lambda: AttentionNorm.from_settings(BoundSettings(norms={"degree": "two"})), "`degree`"),
        (lambda: Component(1, 0.5, 0.0, 0.0), "`key_degree`"),
        (lambda: BiasedNorm(CorrelationTarget(), terms=61), "`terms`.*at most 60"),
        (
            lambda: Target.from_settings(BoundSettings(norms={"coefficients": [1.0]})),
            "`target`.*one that has `coefficients`.*'key_power'",
        ),
        (
            lambda: RandomFeatureClass.from_settings(
                BoundSettings(norms={"squared_norm": 1.0, "degree": 3})
            ),
            "`squared_norm`.*left out beside `degree`",
        ),
        (lambda: CorrelationTarget((0.0, 0.0)), "`coefficients`"),
        (lambda: BiasedNorm(CorrelationTarget((1.0,)), terms=0), "`terms`"),
        (lambda: AttentionNorm.from_settings(BoundSettings(norms={"target": "cube"})), "`target`"),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_no_jax_is_loaded():
    code = (
        "import sys; from finetti.bounds import Sample; "
        "import finetti.bounds.random_features as r; "
        "s = Sample(1000, 10); t = r.Target.key_power(2); r.NetworkNorm(t).evaluate(s); "
        "r.RandomFeatureRisk(r.RandomFeatureClass(4, 100, t)).evaluate(s); "
        "r.BiasedRisk(4, 100, r.CorrelationTarget((0, 1))).evaluate(s); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
