"""CME attention is finite for finite input, and right where rounding would have ruined it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from finetti.attention import ConditionalMean, KernelSmoother, Softmax, cme_solve
from finetti.kernels import RBF, Exponential, Linear, Matern, Polynomial

pytestmark = pytest.mark.rounding

KERNELS = {
    "rbf": RBF,
    "exponential": Exponential,
    "linear": Linear,
    "polynomial-5": lambda: Polynomial(5),
    "matern-1/2": lambda: Matern(0.5),
    "sum": lambda: RBF() + Exponential(),
}
kernels = pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS.keys())

magnitudes = st.one_of(
    st.just(0.0), st.floats(-30, 30).map(lambda power: 10.0**power), st.floats(0.1, 10.0)
)
numbers = st.tuples(magnitudes, st.sampled_from([-1.0, 1.0])).map(lambda pair: pair[0] * pair[1])


def arrays(*shape):
    return hnp.arrays(np.float32, shape, elements=numbers.map(lambda x: float(np.float32(x))))


# Five keys, of which some are equal: five draws from two tokens and three others.
duplicated = st.tuples(arrays(5, 2), st.lists(st.integers(0, 4), min_size=5, max_size=5)).map(
    lambda pair: pair[0][pair[1]]
)


@eqx.filter_jit
def read(module, *arguments):
    return module(*arguments)


@eqx.filter_jit
def solve(kernel, ridge, *arguments):
    return cme_solve(*arguments, kernel=kernel, ridge=ridge)


@eqx.filter_jit
def diagonal(kernel, query):
    return kernel.diagonal(query)


@kernels
@pytest.mark.filterwarnings("ignore:The variance of CME attention exceeds")
@settings(max_examples=60)
@given(
    query=arrays(3, 2),
    keys=duplicated,
    values=arrays(5, 2),
    ridge=st.floats(-12, 6).map(lambda power: 10.0**power),
    mask=hnp.arrays(bool, 5),
)
def test_any_finite_float32_input_gives_a_finite_answer(make, query, keys, values, ridge, mask):
    """While K(k, k) stays below 1e150: fifth powers of tokens up to 1e14.

    A variance is infinite only where K(q, q), which it is before any key, is.
    """
    if isinstance(make(), Polynomial):
        query, keys = (np.clip(array, -1e14, 1e14) for array in (query, keys))
    with jax.enable_x64(False):
        out = read(ConditionalMean(make(), ridge=ridge), query, keys, values, mask)
        solution = solve(make(), jnp.float32(ridge), query, keys, values, mask)
        assert out.dtype == jnp.float32
        for result in (out, solution.mean):
            assert np.isfinite(np.asarray(result)).all()
        prior, variance = np.asarray(diagonal(make(), query)), np.asarray(solution.variance)
        assert (np.isfinite(variance) | np.isinf(prior)).all()
        assert (variance >= 0).all()


@pytest.mark.parametrize(
    "member", [Softmax(), KernelSmoother(Exponential()), KernelSmoother(RBF())]
)
@settings(max_examples=60)
@given(query=arrays(3, 2), keys=duplicated, values=arrays(5, 2), mask=hnp.arrays(bool, 5))
def test_normalized_attention_stays_within_the_values(member, query, keys, values, mask):
    """While scores exist in float32: tokens up to 1e15."""
    query, keys = (np.clip(array, -1e15, 1e15) for array in (query, keys))
    with jax.enable_x64(False):
        low = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), member)
        out = np.asarray(read(low, query, keys, values, mask), np.float64)
    seen = np.asarray(values[mask] if mask.any() else values, np.float64)
    slack = 1e-5 * np.abs(seen).max(axis=0)
    assert (out <= seen.max(axis=0) + slack).all()
    assert (out >= seen.min(axis=0) - slack).all()


@kernels
def test_duplicated_keys_with_a_small_ridge_in_float32_give_the_mean_of_the_duplicates(make):
    """n equal keys with mean value v̄: the answer there is K v̄ / (K + λ/n)."""
    rng = np.random.default_rng(0)
    token = np.array([0.6, -0.3], np.float32)
    keys, values = np.tile(token, (64, 1)), rng.normal(size=(64, 2)).astype(np.float32)
    with jax.enable_x64(False):
        module = ConditionalMean(make(), ridge=1e-6)
        mean, variance = (np.asarray(part) for part in module.posterior(token, keys, values))
        prior = float(make()(jnp.asarray(token), jnp.asarray(token)))
    expected = values.astype(np.float64).mean(axis=0) * prior / (prior + 1e-6 / 64)
    # Weights of 1/64 cost no digits in float64; the output is rounded to float32.
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-7)
    noise = 1e-6 / 64
    assert variance == pytest.approx(prior * noise / (prior + noise), rel=1e-2, abs=1e-14)


@pytest.mark.parametrize("length", [16, 256])
def test_near_duplicates_in_float32(length):
    """Keys that differ in the last bits: singular in float32, harmless in float64."""
    rng = np.random.default_rng(1)
    keys = (1.0 + 1e-7 * rng.normal(size=(length, 2))).astype(np.float32)
    values = np.ones((length, 1), np.float32)
    with jax.enable_x64(False):
        out = ConditionalMean(RBF(), ridge=1e-6)(keys[:3], keys, values)
    np.testing.assert_allclose(np.asarray(out), 1.0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The variance of CME attention exceeds")
@pytest.mark.parametrize("size", [1.0, 10.0, 30.0, 100.0])
def test_long_tokens_of_the_exponential_kernel(size):
    """exp(‖k‖²) up to e^10000: interpolation at the keys, and no NaN in between."""
    rng = np.random.default_rng(2)
    keys = rng.normal(size=(6, 3))
    keys *= size / np.linalg.norm(keys, axis=1, keepdims=True)
    values = rng.normal(size=(6, 2))
    module = ConditionalMean(Exponential(), ridge=1e-3)
    at_keys = module(keys, keys, values)
    assert jnp.isfinite(at_keys).all()
    if size >= 10:  # distinct keys are as good as orthogonal, and noise is nothing against e^100
        np.testing.assert_allclose(at_keys, values, atol=1e-8)
    between, variance = module.posterior((keys + np.roll(keys, 1, axis=0)) / 2, keys, values)
    assert jnp.isfinite(between).all()
    assert (variance >= 0).all()


def test_scaled_system_equals_the_plain_one():
    """Where exp(q·k) does not overflow, scaling by D changes nothing."""
    rng = np.random.default_rng(3)
    query, keys, values = (rng.normal(size=size) for size in ((4, 3), (6, 3), (6, 2)))
    keys *= 4.0
    gram, cross = np.exp(keys @ keys.T), np.exp(keys @ query.T)
    expected = np.linalg.solve(gram + 0.1 * np.eye(6), cross).T @ values
    out = ConditionalMean(Exponential(), ridge=0.1)(query, keys, values)
    np.testing.assert_allclose(out, expected, rtol=1e-8, atol=1e-10)


def test_keys_at_the_origin_of_a_linear_kernel_read_nothing():
    """K = 0: no row, no weight, even where λ underflows."""
    module = ConditionalMean(Linear(), ridge=1e-300)
    out = module(np.ones((1, 2)), np.zeros((3, 2)), np.ones((3, 1)))
    assert (out == 0).all()
