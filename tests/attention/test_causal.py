"""Causal attention in one factorization is the loop over prefixes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, cme_attention
from finetti.attention.cme.feature_space import primal_prefixes
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential, Linear, Polynomial

KERNELS = {
    "rbf": RBF(0.7),
    "exponential": Exponential(),
    "polynomial": Polynomial(2),
    "linear": Linear(),
}
LENGTH = 11


@pytest.fixture
def tokens():
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(LENGTH, width))) for width in (3, 3, 2)]


def by_prefixes(module, query, keys, values, mask=None):
    """The slow, obvious reference: (4.5) and B.1 for each query on its own keys."""
    kernel, values = module.kernel, np.asarray(values)
    gram, cross, prior = map(
        np.asarray, (kernel.gram(keys), kernel.gram(keys, query), kernel.diagonal(query))
    )
    readable = np.ones(LENGTH, bool) if mask is None else np.asarray(mask)
    means, variances = [], []
    for t in range(LENGTH):
        kept = np.flatnonzero(readable[: t + 1])
        noise = float(module.ridge) * np.eye(len(kept))
        weights = np.linalg.solve(gram[np.ix_(kept, kept)] + noise, cross[kept, t])
        means.append(weights @ values[kept])
        variances.append(prior[t] - weights @ cross[kept, t])
    return np.array(means), np.array(variances)


@pytest.mark.parametrize(
    ("name", "route"),
    [*((name, "cholesky") for name in KERNELS), ("polynomial", "auto"), ("linear", "auto")],
)
def test_causal_is_the_loop_over_prefixes(tokens, name, route):
    module = ConditionalMean(KERNELS[name], ridge=0.3, route=route)
    mean, variance = module.posterior(*tokens, is_causal=True)
    slow_mean, slow_variance = by_prefixes(module, *tokens)
    np.testing.assert_allclose(mean, slow_mean, atol=1e-10)
    np.testing.assert_allclose(variance, slow_variance, atol=1e-10)
    np.testing.assert_allclose(module(*tokens, is_causal=True), mean, atol=1e-12)


def test_padding_keys_count_as_deleted(tokens):
    module = ConditionalMean(RBF(), ridge=0.3)
    mask = jnp.arange(LENGTH) % 4 != 0  # the first key is masked: the first query reads nothing
    mean, variance = module.posterior(*tokens, mask, is_causal=True)
    slow_mean, slow_variance = by_prefixes(module, *tokens, mask)
    np.testing.assert_allclose(mean, slow_mean, atol=1e-10)
    np.testing.assert_allclose(variance, slow_variance, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_causal_weights_read_the_values(tokens, name):
    module = ConditionalMean(KERNELS[name], ridge=0.3)
    weights = module.weights(tokens[0], tokens[1], is_causal=True)
    assert not np.any(np.triu(np.asarray(weights), 1))
    np.testing.assert_allclose(weights @ tokens[2], module(*tokens, is_causal=True), atol=1e-10)


def test_a_per_query_mask_and_causality_combine(tokens):
    module = ConditionalMean(RBF(), ridge=0.3)
    rng = np.random.default_rng(1)
    mask = jnp.asarray(rng.random((LENGTH, LENGTH)) < 0.7)
    causal = mask & jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    np.testing.assert_allclose(
        module(*tokens, mask, is_causal=True), module(*tokens, causal), atol=1e-12
    )


def test_causal_gradients_agree_with_masks(tokens):
    module = ConditionalMean(RBF(), ridge=0.3)
    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def fast(tokens):
        return jnp.sum(jnp.sin(module(*tokens, is_causal=True)))

    def slow(tokens):
        return jnp.sum(jnp.sin(module(*tokens, causal)))

    for one, other in zip(jax.grad(fast)(tokens), jax.grad(slow)(tokens), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("chunk", [1, 3, 4, 11, 16])
@pytest.mark.parametrize("queries", [5, 11, 14])
def test_chunks_of_any_size_give_one_answer(chunk, queries):
    rng = np.random.default_rng(2)
    features, values, query = (
        rng.normal(size=size) for size in ((LENGTH, 4), (LENGTH, 2), (queries, 4))
    )
    read = jax.jit(primal_prefixes, static_argnums=4)
    answer = read(features, values, query, np.full(LENGTH, 0.2), chunk)
    for t in range(queries):
        seen, targets = features[: t + 1], values[: t + 1]
        inverse = np.linalg.inv(seen.T @ seen + 0.2 * np.eye(4))
        np.testing.assert_allclose(
            answer.mean[t], query[t] @ inverse @ seen.T @ targets, atol=1e-10
        )
        np.testing.assert_allclose(
            answer.variance[t], 0.2 * query[t] @ inverse @ query[t], atol=1e-10
        )


@pytest.mark.parametrize("kernel", [RBF(), Polynomial(2)])
def test_grouped_heads_are_causal_each_for_itself(kernel):
    rng = np.random.default_rng(3)
    query = jnp.asarray(rng.normal(size=(2, 7, 4, 3)))
    key, value = (jnp.asarray(rng.normal(size=(2, 7, 2, 3))) for _ in range(2))
    grouped = cme_attention(query, key, value, kernel=kernel, ridge=0.3, is_causal=True)
    repeated = cme_attention(
        query,
        jnp.repeat(key, 2, axis=2),
        jnp.repeat(value, 2, axis=2),
        mask=jnp.tril(jnp.ones((7, 7), bool))[None, None],
        kernel=kernel,
        ridge=0.3,
    )
    np.testing.assert_allclose(grouped, repeated, atol=1e-10)


def test_the_future_does_not_matter_even_where_the_kernel_explodes():
    keys = jnp.asarray([[1.0], [2.0], [60.0]])
    values = jnp.asarray([[1.0], [2.0], [3.0]])
    module = ConditionalMean(Exponential(), ridge=0.1)
    causal = module(keys, keys, values, is_causal=True)
    np.testing.assert_allclose(causal[:2], module(keys[:2], keys[:2], values[:2], is_causal=True))
    np.testing.assert_allclose(causal[2], 3.0, rtol=1e-8)


def test_what_causality_cannot_have(tokens):
    with pytest.raises(InputError, match="ridge_per_token"):
        ConditionalMean(RBF(), ridge_per_token=0.1)(*tokens, is_causal=True)
    with pytest.raises(InputError, match="query"):
        ConditionalMean(RBF(), ridge=0.1)(tokens[0][0], *tokens[1:], is_causal=True)
    with pytest.raises(InputError, match="causal"):
        ConditionalMean(RBF(), route="conjugate_gradients")(*tokens, is_causal=True)
