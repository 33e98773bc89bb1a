"""(A.2), (A.3): the minimizer, and CME attention with the ridge Lλ."""

import numpy as np
import pytest

from finetti.attention import ConditionalEmbedding, ConditionalMean
from finetti.core import InputError
from finetti.kernels import RBF

RNG = np.random.default_rng(0)
KEYS, VALUES = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 3))


def test_embedding_is_attention_with_the_ridge_per_token():
    embedding = ConditionalEmbedding(KEYS, VALUES, 0.05)
    queries = RNG.normal(size=(4, 2))
    expected = ConditionalMean(RBF(), ridge=12 * 0.05)(queries, KEYS, VALUES)
    np.testing.assert_allclose(embedding(queries), expected, atol=1e-10)
    squares = embedding.expect(lambda v: v**2, queries)
    np.testing.assert_allclose(squares, embedding.weights(queries) @ VALUES**2, atol=1e-12)


@pytest.mark.parametrize("value_kernel", [None, RBF()])
def test_embedding_minimizes_the_regularized_risk(value_kernel):
    embedding = ConditionalEmbedding(KEYS, VALUES, 0.05)
    gram = np.exp(-np.sum((KEYS[:, None] - KEYS) ** 2, axis=-1) / 2)
    best = np.linalg.inv(gram + 12 * 0.05 * np.eye(12))
    least = embedding.objective(value_kernel=value_kernel)
    assert least == pytest.approx(embedding.objective(best, value_kernel), rel=1e-10)
    for _ in range(5):
        step = RNG.normal(size=(12, 12))
        sides = [embedding.objective(best + s * 1e-3 * step, value_kernel) for s in (-1, 1)]
        assert min(sides) > least
        assert sides[0] - sides[1] == pytest.approx(0, abs=1e-8)  # stationary


def test_wrong_shapes_are_refused():
    with pytest.raises(InputError, match="one row for each"):
        ConditionalEmbedding(KEYS, VALUES[:3], 0.1)
