"""Keys on finitely many points: operators against traces, and against tokens in proportion."""

import numpy as np
import pytest

from finetti.attention import ConditionalMean, KeySupport
from finetti.core import InputError
from finetti.kernels import RBF, Linear

RNG = np.random.default_rng(0)
POINTS, MASS = RNG.normal(size=(5, 2)), np.array([0.1, 0.2, 0.3, 0.3, 0.1])
SUPPORT = KeySupport(POINTS, MASS)


def test_population_is_attention_on_tokens_in_exact_proportion():
    counts = (10 * MASS).round().astype(int)
    keys = np.repeat(POINTS, counts, axis=0)
    means = RNG.normal(size=(5, 2))
    queries = RNG.normal(size=(3, 2))
    module = ConditionalMean(RBF(), ridge_per_token=0.1)
    expected = module(queries, keys, np.repeat(means, counts, axis=0))
    np.testing.assert_allclose(SUPPORT.regularized(means, 0.1, queries), expected, atol=1e-10)
    shared = SUPPORT.regularized(means, 0.1, across=SUPPORT.across(queries))
    np.testing.assert_allclose(shared, expected, atol=1e-10)


def test_counts_of_a_sample_are_attention_on_its_tokens():
    """Means over the tokens of each point, weighted by how often it occurs, and one never does."""
    indices = RNG.choice(4, size=300)
    values = RNG.normal(size=300)
    counts = np.bincount(indices, minlength=5)
    means = np.bincount(indices, weights=values, minlength=5) / np.maximum(counts, 1)
    queries = RNG.normal(size=(3, 2))
    grouped = SUPPORT.regularized(means, 0.01, queries, mass=counts / 300)
    output = ConditionalMean(RBF(), ridge_per_token=0.01)(queries, POINTS[indices], values[:, None])
    np.testing.assert_allclose(grouped, output[:, 0], atol=1e-9)


def test_effective_dimension_is_the_trace_in_feature_space():
    support = KeySupport(POINTS, MASS, Linear())
    covariance = POINTS.T @ (MASS[:, None] * POINTS)
    trace = np.trace(np.linalg.solve(covariance + 0.2 * np.eye(2), covariance))
    assert support.effective_dimension(0.2) == pytest.approx(trace, abs=1e-12)
    assert support.spectrum.sum() == pytest.approx(np.trace(covariance))


def test_source_goes_there_and_back():
    source = RNG.normal(size=5)
    means = SUPPORT.smoothed(source)
    np.testing.assert_allclose(SUPPORT.source(means), source, atol=1e-8)
    norm = np.sqrt(source @ np.linalg.solve(SUPPORT.gram, source))
    assert SUPPORT.source_norm(source) == pytest.approx(norm, rel=1e-8)
    for ridge in (1e-1, 1e-3):
        assert SUPPORT.bias(source, ridge, RNG.normal(size=(50, 2))) <= ridge * norm
    # over columns, the norms add like lengths
    assert SUPPORT.source_norm(np.stack([source, source], 1)) == pytest.approx(2**0.5 * norm)
    assert SUPPORT.bias(np.stack([source, source], 1), 0.1) == pytest.approx(
        2**0.5 * SUPPORT.bias(source, 0.1)
    )


def test_what_has_no_source_is_refused():
    close = KeySupport(np.linspace(0, 1e-3, 6)[:, None], np.full(6, 1 / 6))
    with pytest.raises(InputError, match="shorter lengthscale"):
        close.source(RNG.normal(size=6))


@pytest.mark.parametrize("mass", [[0.5, 0.5], [0.0, 0.2, 0.3, 0.3, 0.2], np.ones(5)])
def test_wrong_masses_are_refused(mass):
    with pytest.raises(InputError, match="sum 1"):
        KeySupport(POINTS, mass)
