"""`cme_solve`: the answer, how it went, and what to do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, cme_solve
from finetti.core import Status
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential, Linear, Polynomial

pytestmark = pytest.mark.rounding

close = partial(np.testing.assert_allclose, rtol=0)


def status(solution):
    return Status(int(solution.status))


def test_solved(context):
    solution = cme_solve(*context, kernel=RBF(), ridge=0.3)
    assert status(solution) is Status.SOLVED
    assert solution.ok
    assert solution.advice == "Solved."
    close(solution.ridge, 0.3, atol=1e-15)
    close(solution.mean, ConditionalMean(RBF(), ridge=0.3)(*context), atol=1e-12)


@pytest.mark.parametrize("ridge", [1.0, 1e-4, 1e-8])
def test_condition_number_is_that_of_the_matrix(ridge, context):
    _, keys, _ = context
    for kernel in (RBF(), RBF(10.0), Linear(), Polynomial(3)):
        matrix = np.asarray(kernel.gram(keys)) + ridge * np.eye(6)
        exact = np.linalg.cond(matrix, 1)
        estimate = float(cme_solve(*context, kernel=kernel, ridge=ridge).condition_number)
        # Hager's estimate is a lower bound; the last factor is rounding at κ = 1e11.
        assert exact / 3 <= estimate <= exact * (1 + 1e-3)


def test_ill_conditioned(context):
    query, _, values = context
    keys = jnp.ones((6, 3))
    solution = cme_solve(query, keys, values, kernel=RBF(), ridge=1e-11)
    assert status(solution) is Status.ILL_CONDITIONED
    assert not solution.ok
    assert "condition number" in solution.advice


def test_floored(context):
    query, _, values = context
    keys = jnp.ones((6, 3))
    solution = cme_solve(query, keys, values, kernel=RBF(), ridge=1e-20)
    assert status(solution) is Status.FLOORED
    assert "floor" in solution.advice
    exact = RBF().gram(query, keys[:1]) @ values.mean(axis=0, keepdims=True)  # λ → 0
    close(solution.mean, exact, atol=1e-2)


def test_floor_is_not_reported_for_masked_keys(context):
    """One key with K(k, k) ≈ 1e18·λ: only the queries that read it hear of the floor."""
    query, keys, values = context
    keys = keys.at[2].set(1e9)
    masks = jnp.ones((4, 6), bool).at[0, 2].set(False)
    solution = cme_solve(query, keys, values, masks, kernel=Linear(), ridge=0.1)
    assert solution.status.tolist() == [Status.SOLVED, *3 * [Status.FLOORED]]
    solution = cme_solve(query, keys, values, masks[0], kernel=Linear(), ridge=0.1)
    assert status(solution) is Status.SOLVED


def nearly_equal(size):
    """Tokens so long that the rounding of k·k' exceeds every floor of the exponential kernel."""
    token = size * np.random.default_rng(0).normal(size=(1, 3))
    return jnp.asarray(np.repeat(token, 6, axis=0) * (1 + 1e-15 * np.arange(6)[:, None]))


# Rounding decides whether anything of e^{1e8} is left of the variance, and whether that is said.
@pytest.mark.filterwarnings("ignore:The variance of CME attention exceeds")
def test_repaired(context):
    keys = nearly_equal(1e4)  # ‖k‖² ≈ 1e8, rounded at 1e-8
    solution = cme_solve(keys[:4], keys, context.values, kernel=Exponential(), ridge=1e-6)
    assert status(solution) is Status.REPAIRED
    assert "diagonal was raised" in solution.advice
    assert jnp.isfinite(solution.mean).all()


def test_failed(context):
    """‖k‖² ≈ 1e24 is rounded at 1e8: e^{1e8} saturates, and no diagonal can dominate it."""
    keys = nearly_equal(1e12)
    solution = cme_solve(keys[:4], keys, context.values, kernel=Exponential(), ridge=1e-6)
    assert status(solution) is Status.FAILED
    assert solution.condition_number == jnp.inf
    assert "no Cholesky factor" in solution.advice
    assert jnp.isnan(solution.mean).all()


def test_shapes_and_advice_of_many_contexts(context):
    query, keys, values = context
    batch = [jnp.stack([array] * 3) for array in context]
    batch[1] = batch[1].at[1].set(1.0)
    solution = cme_solve(*batch, kernel=RBF(), ridge=1e-11)
    assert solution.mean.shape == (3, 4, 2)
    assert solution.variance.shape == (3, 4)
    assert solution.status.shape == solution.condition_number.shape == solution.ridge.shape == (3,)
    assert solution.status.tolist() == [0, Status.ILL_CONDITIONED, 0]
    assert solution.advice.startswith("1 of 3 contexts: Solved, but")
    assert "2 of 3 contexts: Solved." in solution.advice
    masks = jnp.tril(jnp.ones((4, 6), bool))
    per_query = cme_solve(query, keys, values, masks, kernel=RBF(), ridge_per_token=0.1)
    assert per_query.status.shape == (4,)
    close(per_query.ridge, 0.1 * jnp.arange(1.0, 5.0), atol=1e-15)


def test_works_under_jit(context):
    solution = jax.jit(lambda *arrays: cme_solve(*arrays, ridge=0.3))(*context)
    assert solution.ok
    close(solution.mean, cme_solve(*context, ridge=0.3).mean, atol=1e-13)


def test_bad_arguments_are_named(context):
    query, keys, values = context
    with pytest.raises(InputError, match="`keys` argument of cme_solve"):
        cme_solve(query, keys.at[0, 0].set(jnp.nan), values)
    with pytest.raises(InputError, match="`values` argument of cme_solve"):
        cme_solve(query, keys, values[:3])
    for ridge in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="`ridge` argument"):
            cme_solve(*context, ridge=ridge)
