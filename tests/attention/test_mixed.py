"""Float32 attention: accurate where it answers, in values and in gradients; float64 elsewhere."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean
from finetti.attention.cme import mixed_precision
from finetti.attention.cme.float32_factor import Float32Factor
from finetti.attention.cme.gram_products import KeySystem, key_noise
from finetti.attention.context_batch import ContextArrays
from finetti.kernels import RBF, Linear

pytestmark = pytest.mark.rounding

# One split of the factor: a corner of 128 keys and another of 12.
LENGTH = 140


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(LENGTH, 2))
    values = np.sin(keys @ rng.normal(size=(2, 3))) + 0.1 * rng.normal(size=(LENGTH, 3))
    return [array.astype(np.float32) for array in (rng.normal(size=(7, 2)), keys, values)]


@pytest.fixture(scope="module")
def mask():
    return np.arange(LENGTH) % 3 != 1


def loss(route, kernel=None):
    def of(log_ridge, query, keys, values, mask=None):
        module = ConditionalMean(kernel or RBF(), ridge=jnp.exp(log_ridge), route=route)
        return jnp.sum(jnp.sin(module(query, keys, values, mask)))

    return of


@functools.cache
def with_gradients(route):
    return jax.jit(jax.value_and_grad(loss(route), argnums=(0, 1, 2, 3)))


@functools.cache
def answer(route, kernel=None):
    return jax.jit(
        lambda ridge, *tokens: ConditionalMean(kernel or RBF(), ridge=ridge, route=route)(*tokens)
    )


def is_close(found, exact, tolerance):
    for one, other in zip(*map(jax.tree.leaves, (found, exact)), strict=True):
        assert one.dtype == other.dtype == jnp.float32
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("ridge", [10.0, 0.1, 1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("masked", [False, True])
def test_the_answer_and_its_gradients(tokens, mask, ridge, masked):
    visible = mask if masked else np.ones_like(mask)
    arguments = jnp.log(jnp.float32(ridge)), *tokens, visible
    is_close(with_gradients("mixed")(*arguments), with_gradients("cholesky")(*arguments), 1e-3)


@pytest.mark.parametrize("ridge", [0.1, 1e-6])
def test_gradients_of_a_scaled_kernel(tokens, ridge):
    """In float32, and where float64 answers: its diagonal depends on a parameter."""

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(route, kernel, *tokens):
        def of(kernel, *tokens):
            module = ConditionalMean(kernel, ridge=ridge, route=route)
            return jnp.sum(jnp.sin(module(*tokens)))

        return jax.grad(of, argnums=(0, 1, 2, 3))(kernel, *tokens)

    kernel = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), 2.0 * RBF(0.8))
    is_close(gradients("mixed", kernel, *tokens), gradients("cholesky", kernel, *tokens), 1e-3)


def test_the_branch_in_float64_is_the_route_in_float64(tokens, mask):
    rows = [jnp.asarray(array, jnp.float64) for array in tokens]
    rows[2] = jnp.where(mask[:, None], rows[2], 0.0)  # as its callers have it
    read = jax.jit(Float32Factor().mean64)
    for ridge in (0.1, 1e-6):
        found = read(RBF(), jnp.asarray(ridge), ContextArrays(*rows, jnp.asarray(mask)))
        exact = ConditionalMean(RBF(), ridge=ridge, route="cholesky")(*rows, mask)
        np.testing.assert_allclose(found, exact, atol=1e-8)


@jax.jit
def solved(keys, values):
    """What the checks look at: the system, and α."""
    solver, kernel = Float32Factor(), RBF()
    system = KeySystem(kernel, keys, key_noise(kernel, jnp.float32(0.1), keys), None)
    return system, solver.solve(solver.prepare(system), None, values)


def test_the_checks_see_what_is_wrong(tokens):
    values = jnp.asarray(tokens[2])
    system, alpha = solved(*tokens[1:])
    one = jnp.float32(1.0)

    @jax.jit
    def accepted(alpha):
        little = mixed_precision._rounds_little(values, alpha, one)
        return little & mixed_precision._rows_agree(system, values, alpha, one)

    assert accepted(alpha)
    assert not accepted(0 * alpha)
    assert not accepted(alpha.at[3].multiply(1.01))
    assert not accepted(alpha * jnp.nan)
    assert not accepted(alpha * 1.001)
    noise = system.noise
    missed = values - (system.kernel.gram(system.keys) @ alpha + noise[:, None] * alpha)
    is_close = jax.jit(lambda *arguments: mixed_precision._is_close(*arguments).all())
    assert is_close(alpha, missed, noise)
    assert not is_close(alpha, missed + 1e-4, noise)
    assert not is_close(alpha, missed * jnp.nan, noise)
    assert is_close(0 * alpha, 0 * missed, noise)


def test_float32_answers_on_plain_data(tokens, monkeypatch, recompiled):
    """What is fast is what is used: with float64 made to fail, nothing changes."""

    def fails(*_):
        return jnp.full((7, 3), jnp.nan)

    monkeypatch.setattr(Float32Factor, "mean64", fails)
    arguments = jnp.log(jnp.float32(0.1)), *tokens
    found = jax.jit(jax.value_and_grad(loss("mixed"), argnums=(0, 1, 2, 3)))(*arguments)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_batches_decide_together(tokens):
    _, keys, values = tokens
    twice = [np.stack([array] * 2) for array in tokens]
    good = answer("mixed")(0.1, *twice)
    mapped = jax.vmap(lambda *rows: answer("mixed")(0.1, *rows))(*twice)
    # Two float32 answers, each within what the checks let pass.
    tolerance = 1e-4 * np.abs(values).max()
    for found in (good[1], mapped[0]):
        np.testing.assert_allclose(found, answer("mixed")(0.1, *tokens), atol=tolerance)
    # One context of equal keys with a tiny ridge sends the batch to float64; all stay right.
    bad = twice[0], np.stack([keys, 0 * keys]), twice[2]
    mapped = jax.vmap(lambda *rows: answer("mixed")(1e-9, *rows))(*bad)
    np.testing.assert_allclose(mapped, answer("cholesky")(1e-9, *bad), atol=tolerance)


def test_float32_programs_and_half_precision(tokens):
    exact = answer("cholesky")(0.1, *tokens)
    with jax.enable_x64(False):
        assert ConditionalMean().plan((7, 2), (300, 2), (300, 3)).route == "mixed"
        module = ConditionalMean(RBF(), ridge=0.1, route="mixed")
        single_answer = module(*tokens)
        half = [jnp.asarray(array, jnp.bfloat16) for array in tokens]
        half_answer = module(*half)
        assert half_answer.dtype == jnp.bfloat16
        upcast = module(*(array.astype(jnp.float32) for array in half))
    np.testing.assert_allclose(single_answer, exact, atol=1e-4)
    np.testing.assert_allclose(half_answer.astype(jnp.float32), upcast, rtol=2**-8)


def test_second_derivatives(tokens):
    def curvature(route):
        def stretched(factor):
            return loss(route)(jnp.log(jnp.float32(0.1)), factor * tokens[0], *tokens[1:])

        return jax.jit(jax.grad(jax.grad(stretched)))(jnp.float32(1.0))

    np.testing.assert_allclose(curvature("mixed"), curvature("cholesky"), rtol=1e-3)


def test_gradients_under_a_mask_in_a_float32_program(tokens, mask):
    log_ridge = np.log(np.float32(1e-6))
    exact = with_gradients("cholesky")(log_ridge, *tokens, mask)[1][2]
    with jax.enable_x64(False):
        found = jax.jit(jax.grad(loss("mixed"), argnums=2))(log_ridge, *tokens, mask)
    np.testing.assert_allclose(found, exact, atol=1e-3 * np.abs(exact).max())
    assert not np.asarray(found)[~mask].any()


def test_small_values_are_judged_like_large_ones(tokens):
    query, keys, values = tokens
    for ridge in (3e-3, 1e-3):
        plain = answer("mixed")(ridge, *tokens)
        for size in (np.float32(1e-27), np.float32(1e27)):
            scaled = answer("mixed")(ridge, query, keys, values * size)
            np.testing.assert_allclose(scaled / size, plain, atol=1e-5)


def test_one_long_key_does_not_raise_the_ridge_of_the_others(tokens):
    query, keys, values = tokens
    keys = np.concatenate([keys[:-1], np.full((1, 2), 3e5, np.float32)])
    found, exact = (
        ConditionalMean(RBF() + Linear(), ridge=0.1, route=route)(query, keys, values)
        for route in ("mixed", "cholesky")
    )
    np.testing.assert_allclose(found, exact, atol=1e-4)


@pytest.mark.parametrize("route", ["mixed", "cholesky"])
def test_inside_jit_nan_stays_visible(tokens, mask, route):
    for place in range(3):
        spoiled = [array.copy() for array in tokens]
        spoiled[place][1, 0] = np.nan
        expected = np.arange(7) == 1 if place == 0 else np.full(7, True)
        found = answer(route)(0.1, *spoiled)
        np.testing.assert_array_equal(np.isnan(found).any(axis=1), expected)
        if place:  # the mask hides row 1
            assert np.isfinite(answer(route)(0.1, *spoiled, mask)).all()


def test_inside_jit_one_nan_query_does_not_reach_the_others(tokens):
    query = tokens[0].copy()
    query[2] = np.nan
    module = ConditionalMean(RBF(), ridge=0.1)
    found = jax.jit(lambda *arguments: module.posterior(*arguments))(query, *tokens[1:])
    exact = module.posterior(*tokens)
    kept = np.arange(7) != 2
    for one, other in zip(found, exact, strict=True):
        assert np.isnan(one[2]).all()
        np.testing.assert_allclose(one[kept], other[kept], atol=1e-5)
