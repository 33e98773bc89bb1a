"""The float32 factorization: accurate where it answers, float64 where it would not be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean
from finetti.attention.cme import blockwise, conditional_mean, mixed
from finetti.kernels import RBF, Linear, Matern

LENGTH = 300


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


@pytest.fixture(params=["factored again", "conjugate gradients"])
def float64_by(request, monkeypatch):
    """Both ways to float64: a factor of its own, or the float32 one as a preconditioner."""
    if request.param == "conjugate gradients":
        monkeypatch.setattr(mixed, "FACTORED_AGAIN", 100)
    conditional_mean._compiled.cache_clear()
    yield request.param
    conditional_mean._compiled.cache_clear()


@pytest.mark.parametrize(("ridge", "accepted"), [(0.1, True), (1e-4, False), (1e-6, False)])
def test_the_answer_and_its_gradients(tokens, mask, ridge, accepted, float64_by):
    log_ridge = jnp.log(jnp.float32(ridge))
    for visible in (None, mask):
        exact, found = (
            jax.value_and_grad(loss(route), argnums=(0, 1, 2, 3))(log_ridge, *tokens, visible)
            for route in ("cholesky", "mixed")
        )
        # Accepted: a float32 answer. Not accepted: float64, with coefficients of up to 1e6.
        iterated = float64_by == "conjugate gradients"
        tolerance = 1e-3 if accepted else 5e-5 if iterated else 5e-6
        for one, other in zip(*map(jax.tree.leaves, (found, exact)), strict=True):
            assert one.dtype == jnp.float32
            np.testing.assert_allclose(one, other, atol=tolerance * max(1.0, np.abs(other).max()))


def test_the_estimate_bounds_the_error_of_what_is_accepted(tokens):
    query, keys, _ = tokens
    rng = np.random.default_rng(1)
    seen = 0
    for ridge in (1.0, 0.1, 0.01):
        for kernel in (RBF(), RBF(0.3), Matern(1.5)):
            values = rng.normal(size=(LENGTH, 3)).astype(np.float32)
            noise = jnp.full(LENGTH, ridge, jnp.float32)
            keys, values = jnp.asarray(keys), jnp.asarray(values)
            tree = blockwise.factor(kernel, keys, noise, None)
            coefficients = blockwise.solve(tree, kernel, keys, values, None, noise)
            if not mixed._accepted(kernel, keys, values, coefficients):
                continue
            seen += 1
            mean = kernel.gram(query, keys) @ coefficients
            exact = ConditionalMean(kernel, ridge=ridge, route="cholesky")(query, keys, values)
            error = np.abs(mean - exact).max() / np.abs(values).max()
            assert error < 10 * mixed.TOLERANCE
    assert seen >= 5


def test_batches_decide_together(tokens):
    query, keys, values = tokens
    module = ConditionalMean(RBF(), ridge=0.1, route="mixed")
    alone = module(query, keys, values)
    good = np.stack([keys, keys])
    np.testing.assert_allclose(
        module(np.stack([query] * 2), good, np.stack([values] * 2))[1], alone, atol=1e-5
    )
    mapped = jax.jit(jax.vmap(module))(np.stack([query] * 2), good, np.stack([values] * 2))
    np.testing.assert_allclose(mapped[0], alone, atol=1e-5)
    # One context of equal keys with a tiny ridge sends the batch to float64; all stay right.
    tiny = ConditionalMean(RBF(), ridge=1e-9, route="mixed")
    exact = ConditionalMean(RBF(), ridge=1e-9, route="cholesky")
    bad = np.stack([keys, 0 * keys])
    arguments = np.stack([query] * 2), bad, np.stack([values] * 2)
    np.testing.assert_allclose(jax.vmap(tiny)(*arguments), exact(*arguments), atol=2e-5)


def test_float32_programs_and_half_precision(tokens):
    exact = ConditionalMean(RBF(), ridge=0.1, route="cholesky")(*tokens)
    with jax.enable_x64(False):
        module = ConditionalMean(RBF(), ridge=0.1)
        assert module.plan(*(array.shape for array in tokens)).route == "mixed"
        single_answer = module(*tokens)
        gradient = jax.grad(loss("auto"), argnums=2)(jnp.log(jnp.float32(1e-6)), *tokens)
        half = [jnp.asarray(array, jnp.bfloat16) for array in tokens]
        half_answer = module(*half)
        assert half_answer.dtype == jnp.bfloat16
        upcast = module(*(array.astype(jnp.float32) for array in half))
    np.testing.assert_allclose(single_answer, exact, atol=1e-4)
    np.testing.assert_allclose(half_answer.astype(jnp.float32), upcast, rtol=2**-8)
    assert bool(jnp.isfinite(gradient).all())


def test_second_derivatives(tokens):
    def curvature(route):
        def stretched(factor):
            return loss(route)(jnp.log(jnp.float32(0.1)), factor * tokens[0], *tokens[1:])

        return jax.grad(jax.grad(stretched))(jnp.float32(1.0))

    np.testing.assert_allclose(curvature("mixed"), curvature("cholesky"), rtol=1e-3)


def test_gradients_under_a_mask_in_a_float32_program(tokens, mask):
    log_ridge = jnp.log(jnp.float32(1e-6))
    exact = jax.grad(loss("cholesky"), argnums=2)(log_ridge, *tokens, mask)
    with jax.enable_x64(False):
        found = jax.grad(loss("mixed"), argnums=2)(log_ridge, *tokens, mask)
    np.testing.assert_allclose(found, exact, atol=5e-6 * np.abs(exact).max())
    assert not np.asarray(found)[~mask].any()


def test_keys_in_clusters_far_apart_are_float64(tokens):
    # Distances within a cluster are what is left of squares of 100 each: float32 has no digits.
    rng = np.random.default_rng(2)
    centers = 300.0 * rng.normal(size=(20, 2))
    keys = (centers[np.arange(LENGTH) % 20] + tokens[1]).astype(np.float32)
    for ridge in (10.0, 0.1):
        answer, exact = (
            ConditionalMean(RBF(), ridge=ridge, route=route)(keys[:7], keys, tokens[2])
            for route in ("mixed", "cholesky")
        )
        np.testing.assert_allclose(answer, exact, atol=1e-4)


def test_small_values_are_judged_like_large_ones(tokens):
    query, keys, values = tokens
    for ridge in (3e-3, 1e-3):
        module = ConditionalMean(RBF(), ridge=ridge, route="mixed")
        small = module(query, keys, values * np.float32(1e-27))
        np.testing.assert_allclose(small * np.float32(1e27), module(query, keys, values), atol=1e-5)


def test_one_long_key_does_not_raise_the_ridge_of_the_others(tokens, float64_by):
    query, keys, values = tokens
    keys = np.concatenate([keys[:-1], np.full((1, 2), 3e5, np.float32)])
    answer, exact = (
        ConditionalMean(RBF() + Linear(), ridge=0.1, route=route)(query, keys, values)
        for route in ("mixed", "cholesky")
    )
    np.testing.assert_allclose(answer, exact, atol=1e-4)


@pytest.mark.parametrize("route", ["mixed", "cholesky"])
def test_inside_jit_nan_stays_visible(tokens, mask, route):
    module = ConditionalMean(RBF(), ridge=0.1, route=route)
    read = jax.jit(lambda *arguments: module(*arguments))
    for place in range(3):
        spoiled = [array.copy() for array in tokens]
        spoiled[place][1, 0] = np.nan
        expected = np.arange(7) == 1 if place == 0 else np.full(7, True)
        np.testing.assert_array_equal(np.isnan(read(*spoiled)).any(axis=1), expected)
        if place:  # the mask hides row 1
            assert np.isfinite(read(*spoiled, mask)).all()


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
