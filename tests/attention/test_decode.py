"""Decoding step by step is recomputing from scratch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import (
    ConditionalMean,
    DecodeState,
    DeltaRule,
    KernelSmoother,
    LinearAttention,
    LocalLinear,
    Softmax,
    start_decoding,
)
from finetti.core.errors import InputError, UnsupportedError
from finetti.kernels import RBF, Exponential, Linear, Polynomial

pytestmark = pytest.mark.rounding


def draw(*batch, length=8):
    rng = np.random.default_rng(0)
    return (
        jnp.asarray(rng.normal(size=(*batch, length, 3))),
        jnp.asarray(rng.normal(size=(*batch, length, 2))),
        jnp.asarray(rng.normal(size=(*batch, 3))),
    )


@pytest.mark.parametrize("kernel", [RBF(), Polynomial(2)])
@pytest.mark.parametrize("prompt", [0, 1, 5])
def test_a_decode_step_is_full_recomputation(kernel, prompt):
    keys, values, query = draw(2)
    module = ConditionalMean(kernel, ridge=0.05, route="cholesky")
    cache = start_decoding(module, keys[:, :prompt], values[:, :prompt], capacity=10)
    for t in range(prompt, 8):
        cache = cache.append(keys[:, t], values[:, t])
        if t not in (5, 7):  # every length of the full context compiles anew
            continue
        mean, variance = cache.read(query)
        exact = module.posterior(query, keys[:, : t + 1], values[:, : t + 1])
        np.testing.assert_allclose(mean, exact[0], atol=1e-10)
        np.testing.assert_allclose(variance, exact[1], atol=1e-10)
    assert int(cache.length) == 8


def test_an_empty_cache_answers_with_the_prior():
    keys, values, query = draw()
    module = ConditionalMean(2.0 * RBF(), ridge=0.1)
    mean, variance = start_decoding(module, keys[:0], values[:0], 4).read(query)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 2.0)


def test_decoding_runs_under_scan_and_keeps_float64_in_a_float32_program():
    with jax.enable_x64(False):
        rng = np.random.default_rng(1)
        keys = jnp.asarray(np.repeat(rng.normal(size=(30, 4)), 2, axis=0), jnp.float32)
        values = jnp.asarray(rng.normal(size=(60, 1)), jnp.float32)
        module = ConditionalMean(RBF(), ridge=1e-6)  # twins: float32 factors would fail

        @jax.jit
        def decode(keys, values):
            cache = start_decoding(module, keys[:0], values[:0], 60)
            step = lambda cache, pair: (cache.append(*pair), None)  # noqa: E731
            return jax.lax.scan(step, cache, (keys, values))[0]

        cache = decode(keys, values)
        mean, _ = cache.read(keys[7])
        assert mean.dtype == jnp.float32
        np.testing.assert_allclose(mean, (values[6] + values[7]) / 2, atol=1e-4)


def test_a_full_cache_is_refused_and_left_alone_inside_jit():
    keys, values, query = draw()
    module = ConditionalMean(RBF(), ridge=0.1)
    cache = start_decoding(module, keys, values, capacity=8)
    with pytest.raises(InputError, match="full"):
        cache.append(keys[0], values[0])
    same = jax.jit(lambda cache: cache.append(keys[0], values[0]))(cache)
    np.testing.assert_array_equal(same.factor.high, cache.factor.high)
    np.testing.assert_allclose(same.read(query)[0], cache.read(query)[0])


def test_the_prompt_is_differentiated():
    keys, values, query = draw()
    module = ConditionalMean(RBF(), ridge=0.1)

    def decoded(keys, values):
        return start_decoding(module, keys, values, capacity=9).read(query)[0].sum()

    def called(keys, values):
        return module(query, keys, values).sum()

    for found, exact in zip(
        *(jax.grad(f, argnums=(0, 1))(keys, values) for f in (decoded, called)), strict=True
    ):
        np.testing.assert_allclose(found, exact, atol=1e-10)


def test_bad_input_names_the_argument():
    keys, values, query = draw()
    module = ConditionalMean(RBF(), ridge=0.1)
    cache = start_decoding(module, keys, values, capacity=9)
    with pytest.raises(InputError, match="`key`"):
        cache.append(keys[0][:2], values[0])
    with pytest.raises(InputError, match="`value`"):
        cache.append(keys[0], values[0][:1])
    with pytest.raises(InputError, match="`query`"):
        cache.read(query * jnp.nan)
    for capacity in (3, 9.5, "9"):
        with pytest.raises(InputError, match="`capacity`"):
            start_decoding(module, keys, values, capacity=capacity)
    with pytest.raises(InputError, match="`values`"):
        start_decoding(module, keys, values[:3], capacity=9)
    with pytest.raises(InputError, match="ridge_per_token"):
        start_decoding(ConditionalMean(RBF(), ridge_per_token=0.1), keys, values, 9)
    with pytest.raises(InputError, match="bounded growth"):
        start_decoding(ConditionalMean(Exponential()), keys, values, 9)


STATES = {
    "linear": LinearAttention(Polynomial(2)),
    "delta": DeltaRule(0.8, 0.9),
    "mesa": ConditionalMean(Linear(), ridge=0.05),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("prompt", [0, 5])
def test_a_state_of_fixed_size_is_the_causal_call(name, prompt):
    keys, values, _ = draw(2)
    module = STATES[name]
    state = start_decoding(module, keys[:, :prompt], values[:, :prompt])
    assert isinstance(state, DecodeState)

    def step(state, pair):
        state = state.append(*pair)
        return state, state.read(pair[0])

    rest = (keys[:, prompt:].swapaxes(0, 1), values[:, prompt:].swapaxes(0, 1))
    _, (means, variances) = jax.lax.scan(step, state, rest)
    exact = module(keys, keys, values, is_causal=True)[:, prompt:]
    np.testing.assert_allclose(means.swapaxes(0, 1), exact, atol=1e-10)
    if name == "mesa":
        exact = STATES["mesa"].posterior(keys, keys, values, is_causal=True)[1][:, prompt:]
        np.testing.assert_allclose(variances.swapaxes(0, 1), exact, atol=1e-10)
    else:
        assert variances is None


def test_a_state_keeps_the_precision_of_the_data():
    with jax.enable_x64(False):
        keys = jnp.ones((3, 2), jnp.bfloat16)
        state = start_decoding(DeltaRule(), keys, keys)
        assert state.state.dtype == jnp.float32  # sums need more bits than tokens
        assert state.append(keys[0], keys[0]).read(keys[0])[0].dtype == jnp.bfloat16


def test_half_precision_keeps_a_state_that_does_not_drift():
    rng = np.random.default_rng(5)
    keys, values = (jnp.asarray(rng.normal(size=(60, 2)), jnp.bfloat16) for _ in range(2))
    module = ConditionalMean(RBF(), ridge=1e-3)
    state = start_decoding(module, keys[:20], values[:20], capacity=60)
    for key, value in zip(keys[20:], values[20:], strict=True):
        state = state.append(key, value)
    assert state.factor.low.dtype == jnp.float32
    found, variance = state.read(keys[7])
    expected = module(*(array.astype(float) for array in (keys[7], keys, values)))
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=2**-8, atol=1e-6)
    assert found.dtype == variance.dtype == jnp.bfloat16


def test_attention_without_a_state_says_what_its_state_is():
    keys, values, query = draw()
    for module in (Softmax(), KernelSmoother(RBF()), LocalLinear(RBF())):
        with pytest.raises(UnsupportedError, match="the pairs themselves"):
            start_decoding(module, keys, values)
    with pytest.raises(InputError, match=r"`capacity` .* no finite feature map"):
        start_decoding(ConditionalMean(RBF(), ridge=0.1), keys, values)
    state = start_decoding(DeltaRule(), keys, values)
    with pytest.raises(InputError, match=r"`key` argument of FastWeightState\.append"):
        state.append(keys[0][:2], values[0])
    with pytest.raises(InputError, match=r"`query` argument of FastWeightState\.read"):
        state.read(query * jnp.nan)
    moments = start_decoding(STATES["mesa"], keys, values)
    with pytest.raises(InputError, match=r"`value` argument of MomentCache\.append"):
        moments.append(keys[0], values[0][:1])
