"""Float32 data, float64 solve: as accurate as the data, forwards and backwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, cme_attention
from finetti.kernels import RBF, Exponential, Matern

LENGTH = 32


def data():
    rng = np.random.default_rng(0)
    keys = np.linspace(0, 1, LENGTH)[:, None] + 0.01 * rng.normal(size=(LENGTH, 1))
    values = np.sin(6 * keys) + 0.01 * rng.normal(size=(LENGTH, 1))
    arrays = rng.uniform(size=(5, 1)), keys, values
    # Round first: the tests ask about the solve, not about the rounding of the data.
    return [array.astype(np.float32).astype(np.float64) for array in arrays]


@pytest.mark.parametrize("kernel", [RBF, Exponential, Matern])
@pytest.mark.parametrize("ridge", [1e-2, 1e-6])
def test_float32_equals_the_float64_reference(kernel, ridge):
    ridge = float(np.float32(ridge))
    exact = ConditionalMean(kernel(), ridge=ridge).posterior(*data())
    with jax.enable_x64(False):
        module = ConditionalMean(kernel(), ridge=ridge)
        mean, variance = module.posterior(*(array.astype(np.float32) for array in data()))
        called = module(*(array.astype(np.float32) for array in data()))
        assert mean.dtype == variance.dtype == called.dtype == jnp.float32
    # log λ is kept in float32: λ is off by up to |log λ|·2⁻²⁴, and the answer by as much.
    np.testing.assert_allclose(mean, exact[0], atol=1e-5)
    np.testing.assert_allclose(called, exact[0], atol=1e-5)
    np.testing.assert_allclose(variance, exact[1], rtol=1e-4)


def test_a_float32_solve_would_not_do():
    """The negative control: the same formula in float32 misses the tolerance above."""
    query, keys, values = data()
    gram = np.exp(-((keys - keys.T) ** 2) / 2).astype(np.float32)
    cross = np.exp(-((keys - query.T) ** 2) / 2).astype(np.float32)
    system = gram + np.float32(1e-6) * np.eye(LENGTH, dtype=np.float32)
    plain = np.linalg.solve(system, values.astype(np.float32)).T @ cross
    exact = ConditionalMean(RBF(), ridge=1e-6)(query, keys, values)
    assert np.abs(plain.T - np.asarray(exact)).max() > 1e-4


def test_gradients_in_float32_equal_those_in_float64():
    def loss(module, query, keys, values):
        return jnp.sum(jnp.sin(module(query, keys, values)))

    def gradient():
        module = ConditionalMean(RBF(), ridge=1e-3)
        arrays = (jnp.asarray(array, module.log_ridge.dtype) for array in data())
        return jax.tree.leaves(jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(module, *arrays))

    exact = gradient()
    with jax.enable_x64(False):
        single = [np.asarray(leaf) for leaf in gradient()]
    for mine, slow in zip(single, exact, strict=True):
        assert mine.dtype == np.float32
        # The condition number 1e4 of the system amplifies the rounding 6e-8 of log λ.
        np.testing.assert_allclose(mine, slow, atol=1e-3 * np.abs(slow).max())


def test_bfloat16_in_and_out():
    with jax.enable_x64(False):
        half = [jnp.asarray(array, jnp.bfloat16) for array in data()]
        rounded = [np.asarray(array, np.float64) for array in half]
        mean, variance = ConditionalMean(RBF(), ridge=0.25).posterior(*half)
        assert mean.dtype == variance.dtype == jnp.bfloat16
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
    exact = ConditionalMean(RBF(), ridge=0.25).posterior(*rounded)
    # Only the last rounding is in bfloat16: half a unit of 8 bits.
    np.testing.assert_allclose(mean, exact[0], rtol=2**-8)
    np.testing.assert_allclose(variance, exact[1], rtol=2**-8)


def test_closures_over_arrays_may_be_compiled():
    """A constant inside jit is checked, not traced."""
    with jax.enable_x64(False):
        query, keys, values = (jnp.asarray(array, jnp.float32) for array in data())
        module = ConditionalMean(RBF(), ridge=0.1)
        plain = module(query, keys, values)
        compiled = jax.jit(lambda values: module(query, keys, values))(values)
        np.testing.assert_allclose(compiled, plain, atol=1e-6)
        heads = [array[None, :, None] for array in (query, keys, values)]
        functional = jax.jit(lambda value: cme_attention(*heads[:2], value, ridge=0.1))(heads[2])
        assert functional.shape == (1, 5, 1, 1)


def test_batches_in_a_float32_program():
    """What JAX lowers late must not meet float64 outside its block: two contexts, with gradient."""
    with jax.enable_x64(False):
        rng = np.random.default_rng(5)
        tokens = [jnp.asarray(rng.normal(size=(2, 13, width)), jnp.float32) for width in (3, 3, 2)]
        module = ConditionalMean(ridge=0.1)

        @jax.jit
        def gradient(tokens):
            return jax.grad(lambda tokens: jnp.sum(module(*tokens, is_causal=True) ** 2))(tokens)

        mean = jax.jit(lambda tokens: module(*tokens))(tokens)
        for index in range(2):
            query, keys, values = (np.asarray(array[index], np.float64) for array in tokens)
            gram = np.exp(-np.sum((keys[:, None] - keys[None]) ** 2, axis=-1) / 2)
            cross = np.exp(-np.sum((query[:, None] - keys[None]) ** 2, axis=-1) / 2)
            exact = cross @ np.linalg.solve(gram + 0.1 * np.eye(13), values)
            np.testing.assert_allclose(mean[index], exact, atol=1e-5)
        assert all(np.isfinite(leaf).all() for leaf in gradient(tokens))
