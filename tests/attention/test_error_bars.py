"""The variance reaches the network: functional form, heads, layers, Flax."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from flax import linen, nnx

from finetti.attention import (
    ConditionalMean,
    KernelSmoother,
    MultiHead,
    PerQueryMaskWarning,
    Softmax,
    cme_attention,
    cme_solve,
    flax_attention_fn,
    softmax_attention,
)
from finetti.core.errors import InputError, UnsupportedError
from finetti.kernels import RBF, Exponential, Linear, Polynomial

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_functional_variance_is_that_of_the_posterior(is_causal):
    tokens = [jnp.asarray(RNG.normal(size=(2, 6, heads, 3))) for heads in (4, 2, 2)]
    mean, variance = cme_attention(*tokens, ridge=0.2, is_causal=is_causal, return_variance=True)
    assert variance.shape == (2, 6, 4)
    np.testing.assert_allclose(
        mean, cme_attention(*tokens, ridge=0.2, is_causal=is_causal), atol=1e-12
    )
    query, keys, values = (array / 3**0.25 for array in tokens)
    wanted = ConditionalMean(RBF(), ridge=0.2).posterior(
        query[1, :, 3], keys[1, :, 1], values[1, :, 1], is_causal=is_causal
    )[1]
    np.testing.assert_allclose(variance[1, :, 3], wanted, atol=1e-12)
    _, noisy = cme_attention(
        *tokens, ridge=0.2, is_causal=is_causal, return_variance=True, predictive=True
    )
    np.testing.assert_allclose(noisy, variance + 0.2, atol=1e-12)


def heads_of(attention):
    return MultiHead.init(jax.random.key(0), n_heads=2, dimension=4, attention=attention)


def test_the_variance_of_heads_is_that_of_a_sum_of_independent_values():
    heads, tokens = heads_of(ConditionalMean(ridge=0.3)), jnp.asarray(RNG.normal(size=(3, 7, 4)))
    mean, variance = heads.posterior(tokens, tokens)
    np.testing.assert_allclose(mean, heads(tokens, tokens), atol=1e-10)
    wanted = 0.0
    for w_q, w_k, w_v, w_o in zip(
        heads.query_weights,
        heads.key_weights,
        heads.value_weights,
        heads.output_weights,
        strict=True,
    ):
        own = heads.attention.posterior(tokens @ w_q, tokens @ w_k, tokens @ w_v)[1]
        wanted = wanted + np.asarray(own)[..., None] * np.sum(np.square(w_o), axis=0)
    np.testing.assert_allclose(variance, wanted, atol=1e-12)
    noisy = heads.posterior(tokens, tokens, predictive=True)[1]
    squares = np.sum(np.square(heads.output_weights), axis=(0, 1))
    np.testing.assert_allclose(noisy - variance, np.broadcast_to(0.3 * squares, noisy.shape))


@pytest.mark.parametrize(
    "attention", [ConditionalMean(ridge=0.3), Softmax()], ids=["cme", "softmax"]
)
def test_heads_read_causally(attention):
    heads, tokens = heads_of(attention), jnp.asarray(RNG.normal(size=(2, 7, 4)))
    visible = jnp.broadcast_to(jnp.tril(jnp.ones((7, 7), bool)), (2, 7, 7))
    wanted = heads(tokens, tokens, visible)
    np.testing.assert_allclose(heads(tokens, tokens, is_causal=True), wanted, atol=1e-6)
    if isinstance(attention, ConditionalMean):
        found = heads.posterior(tokens, tokens, is_causal=True)
        for part, same in zip(found, heads.posterior(tokens, tokens, visible), strict=True):
            np.testing.assert_allclose(part, same, atol=1e-6)


def test_softmax_has_no_error_bar():
    tokens = jnp.zeros((7, 4))
    with pytest.raises(UnsupportedError, match=r"Softmax attention has no variance. Use Cond"):
        heads_of(Softmax()).posterior(tokens, tokens)


def test_flax_layers_sow_the_variance():
    tokens = jnp.asarray(RNG.normal(size=(2, 5, 4)), jnp.float32)
    attention_fn = flax_attention_fn(cme_attention, ridge=0.1)
    layer = linen.MultiHeadDotProductAttention(num_heads=2, attention_fn=attention_fn)
    parameters = layer.init(jax.random.key(0), tokens)
    out, sown = layer.apply(parameters, tokens, sow_weights=True, mutable=["intermediates"])
    (variance,) = sown["intermediates"]["attention_variance"]
    assert variance.shape == (2, 5, 2)
    assert bool(jnp.all((variance > 0) & (variance < 1)))
    np.testing.assert_allclose(out, layer.apply(parameters, tokens), atol=1e-5)
    other = nnx.MultiHeadAttention(
        num_heads=2, in_features=4, attention_fn=attention_fn, decode=False, rngs=nnx.Rngs(0)
    )
    _, sown = nnx.capture(other, nnx.Intermediate)(tokens, sow_weights=True)
    assert jax.tree.leaves(sown["attention_variance"])[0].shape == (2, 5, 2)
    with pytest.raises(InputError, match="sow_weights=True"):
        flax_attention_fn(cme_attention, return_variance=True)
    # A function without an error bar is left alone.
    plain = linen.MultiHeadDotProductAttention(
        num_heads=2, attention_fn=flax_attention_fn(softmax_attention)
    )
    _, sown = plain.apply(parameters, tokens, sow_weights=True, mutable=["intermediates"])
    assert "attention_variance" not in sown.get("intermediates", {})


def test_numbers_are_read_as_numbers_and_columns_as_arrays():
    table = pd.DataFrame({"x": RNG.normal(size=9), "z": RNG.normal(size=9)})
    table["y"] = np.sin(table["x"])
    attention, query = ConditionalMean(ridge=0.1), np.zeros((4, 2))
    keys = table[["x", "z"]]
    mean, variance = attention.posterior(query, keys, table["y"])
    assert mean.shape == variance.shape == (4,)
    column = attention(query, keys.to_numpy(), table[["y"]].to_numpy())
    np.testing.assert_allclose(mean, column[:, 0], atol=1e-12)
    np.testing.assert_allclose(attention(query, keys, table["y"]), mean, atol=1e-12)
    np.testing.assert_allclose(cme_solve(query, keys, table["y"], ridge=0.1).mean, mean, atol=1e-9)
    assert Softmax()(query, keys, table["y"]).shape == (4,)
    with pytest.raises(InputError, match="`values`"):
        attention(query, keys, table["y"][:5])


def test_attention_prints_its_numbers():
    assert repr(ConditionalMean(RBF(0.7), ridge=0.5)) == (
        "ConditionalMean(RBF(lengthscale=0.7), ridge=0.5)"
    )
    attention = ConditionalMean(RBF() + 2.0 * Linear(), ridge_per_token=0.01, route="cholesky")
    assert repr(attention) == (
        "ConditionalMean(Sum(left=RBF(lengthscale=1), right=Scaled(part=Linear(), constant=2)), "
        "ridge_per_token=0.01, route='cholesky')"
    )
    assert "RBF(lengthscale=1)" in repr(KernelSmoother(RBF()))
    assert "ConditionalMean(RBF(lengthscale=0.7), ridge=0.5)" in repr(
        heads_of(ConditionalMean(RBF(0.7), ridge=0.5))
    )
    seen = []
    jax.jit(lambda module: seen.append(repr(module)) or module.ridge)(attention)
    assert "ridge_per_token=" in seen[0]
    assert "0.01" not in seen[0]


def test_a_mask_per_query_says_what_it_costs():
    tokens = [jnp.asarray(RNG.normal(size=(5, width))) for width in (2, 2, 1)]
    with pytest.warns(PerQueryMaskWarning, match=r"one solve per query.*is_causal=True") as said:
        ConditionalMean()(*tokens, jnp.eye(5, dtype=bool))
    assert said[0].filename == __file__


def exact_variance(query, keys, ridge):
    """K(q, q) − K(q, K)(K + λI)⁻¹K(K, q) of the exponential kernel, by 400 digits."""
    with mp.workdps(400):
        query, keys = (mp.matrix(array.tolist()) for array in (query, keys))
        gram = (keys * keys.T).apply(mp.exp) + mp.mpf(ridge) * mp.eye(keys.rows)
        across = (keys * query).apply(mp.exp)
        return float(mp.exp((query.T * query)[0]) - (across.T * mp.lu_solve(gram, across))[0])


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_variance_of_long_tokens_is_right(is_causal):
    """Keys near the query, and so far from it that they explain less than any number."""
    attention = ConditionalMean(Exponential(), ridge=0.1)
    for amplitude in (0.5, 2.0, 5.0, 9.0):
        query, keys = amplitude * RNG.normal(size=(3, 4)), amplitude * RNG.normal(size=(3, 4))
        query[1] = -1.1 * keys[0]
        values = np.ones((3, 1))
        _, variance = attention.posterior(query, keys, values, is_causal=is_causal)
        counts = range(1, 4) if is_causal else (3, 3, 3)
        expected = [exact_variance(q, keys[:n], 0.1) for q, n in zip(query, counts, strict=True)]
        np.testing.assert_allclose(variance, expected, rtol=1e-6)
        prior = np.exp(np.sum(query**2, axis=1))
        hidden = attention.posterior(query, keys, values, np.zeros(3, bool))[1]
        np.testing.assert_allclose(hidden, prior, rtol=1e-9)


def test_a_variance_beyond_all_numbers_is_infinite_and_says_so():
    attention = ConditionalMean(Exponential() * Polynomial(2), ridge=0.1)
    keys, values = np.eye(2, 4), np.ones((2, 1))
    query = np.array([[20.0, 20.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])  # e^800 and e
    with pytest.warns(UserWarning, match=r"largest float64 number.* infinite there.*Scale"):
        mean, variance = attention.posterior(query, keys, values)
    assert variance[0] == jnp.inf
    assert 0 < variance[1] < 20
    assert jnp.isfinite(mean).all()
    with pytest.warns(UserWarning, match="infinite there"):
        assert cme_solve(query, keys, values, kernel=attention.kernel).variance[0] == jnp.inf
    # Its cotangent 0 must not spoil the gradient of the mean.
    gradient = jax.grad(lambda q: attention.posterior(q, keys, values)[0].sum())(query / 1.05)
    assert jnp.isfinite(gradient).all()
    with jax.enable_x64(False):
        single = ConditionalMean(Exponential(), ridge=0.1)
        tokens = [jnp.asarray(array, jnp.float32) for array in (query / 2, keys, values)]
        with pytest.warns(UserWarning, match="largest float32 number"):
            variance = single.posterior(*tokens)[1]
        assert variance[0] == jnp.inf  # e^200
