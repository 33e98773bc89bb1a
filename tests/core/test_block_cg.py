"""Block conjugate gradients: the answer, few iterations, and right-hand sides that repeat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.linalg.block_cg import conjugate_gradients

SIZE = 200


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    values = np.concatenate([np.geomspace(1e2, 1e4, 24), rng.uniform(1, 2, size=SIZE - 24)])
    return (basis * values) @ basis.T, rng.normal(size=(SIZE, 8))


def solve(matrix, right, tolerance=1e-10):
    least = jnp.ones((), right.dtype)  # no eigenvalue is below 1
    return jax.jit(
        lambda right: conjugate_gradients(
            lambda x: jnp.asarray(matrix) @ x, right, lambda r: r, least, tolerance
        )
    )(jnp.asarray(right))


def test_the_answer(problem):
    matrix, right = problem
    solution, how = solve(matrix, right)
    assert float(jnp.max(how.relative_error)) <= 1e-10
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), atol=1e-9)


def test_columns_help_each_other(problem):
    """24 outlying eigenvalues are found eight at a time."""
    matrix, right = problem
    together = int(solve(matrix, right)[1].iterations)
    alone = int(solve(matrix, right[:, :1])[1].iterations)
    assert 2 * together < alone


def test_columns_that_repeat_or_vanish(problem):
    matrix, right = problem
    right = np.stack(
        [right[:, 0], right[:, 0], 0 * right[:, 0], right[:, 1], 1e-9 * right[:, 2]], 1
    )
    solution, how = solve(matrix, right)
    exact = np.linalg.solve(matrix, right)
    assert float(jnp.max(how.relative_error)) <= 1e-9
    np.testing.assert_allclose(solution[:, 2], 0.0)
    for column in (0, 1, 3, 4):
        size = np.abs(exact[:, column]).max()
        np.testing.assert_allclose(solution[:, column] / size, exact[:, column] / size, atol=1e-7)


def test_a_goal_below_rounding_ends(problem):
    matrix, right = problem
    solution, how = solve(matrix.astype(np.float32), right.astype(np.float32), 1e-12)
    assert int(how.iterations) <= 500
    assert 1e-12 < float(jnp.max(how.relative_error)) < 1e-1
    assert bool(jnp.isfinite(solution).all())


def test_no_start_beyond_the_last_one(problem, monkeypatch):
    monkeypatch.setattr("finetti.core.linalg.block_cg.MAX_RESTARTS", 0)
    assert int(solve(*problem)[1].iterations) == 0
