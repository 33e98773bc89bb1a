"""Factors and solves in blocks are those of LAPACK, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core import block_tree, blocked


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Corners of 5 with a base of 2: whole corners, a part of one, and recursion at size 17."""
    monkeypatch.setattr(blocked, "MIN_BLOCKED", 8)
    monkeypatch.setattr(block_tree, "_LAPACK_ROWS", 2)
    monkeypatch.setattr(block_tree, "_CORNER_ROWS", {1024: 5})


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(17, 17))
    return jnp.asarray(root @ root.T + 0.1 * np.eye(17))


def test_the_factor_is_that_of_lapack(matrix):
    np.testing.assert_allclose(blocked.cholesky(matrix), np.linalg.cholesky(matrix), atol=1e-12)


@pytest.mark.parametrize("transpose", [False, True])
def test_solves_and_their_gradients_are_those_of_lapack(matrix, transpose):
    factor = jnp.linalg.cholesky(matrix)
    right = jnp.asarray(np.random.default_rng(1).normal(size=(17, 3)))

    def slow(factor, right):
        return jax.scipy.linalg.solve_triangular(
            factor, right, lower=True, trans="T" if transpose else "N"
        )

    def fast(factor, right):
        return blocked.solve_lower(factor, right, transpose)

    np.testing.assert_allclose(fast(factor, right), slow(factor, right), atol=1e-11)
    for one, other in zip(
        *(
            jax.jit(jax.grad(lambda *args, f=f: jnp.sum(jnp.sin(f(*args))), argnums=(0, 1)))(
                factor, right
            )
            for f in (fast, slow)
        ),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_factored_solves(matrix):
    right = jnp.asarray(np.random.default_rng(2).normal(size=(17, 2)))
    np.testing.assert_allclose(
        blocked.solve_factored(blocked.cholesky(matrix), right),
        np.linalg.solve(matrix, right),
        atol=1e-10,
    )


def test_the_diagonal_can_be_raised(matrix):
    raised = jnp.arange(17.0)
    np.testing.assert_allclose(
        blocked.cholesky(matrix, raised), np.linalg.cholesky(matrix + np.diag(raised)), atol=1e-12
    )


def test_an_indefinite_matrix_is_seen_on_the_diagonal(matrix):
    broken = matrix.at[9, 9].set(-1.0)
    assert not np.isfinite(np.diagonal(blocked.cholesky(broken))).all()


def test_the_real_sizes_are_accurate():
    """One size above the threshold, as it ships: backward error of a Gram matrix near singular."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked, "MIN_BLOCKED", 512)
        patch.setattr(block_tree, "_LAPACK_ROWS", 64)
        patch.setattr(block_tree, "_CORNER_ROWS", {1024: 128})
        points = np.random.default_rng(3).normal(size=(600, 2))
        squared = np.sum((points[:, None] - points[None]) ** 2, axis=-1)
        gram = jnp.asarray(np.exp(-squared / 2) + 1e-6 * np.eye(600))
        factor = jax.jit(lambda gram: blocked.cholesky(gram))(gram)
        right = jnp.asarray(np.random.default_rng(4).normal(size=(600, 2)))
        solution = jax.jit(lambda *args: blocked.solve_factored(*args))(factor, right)
    assert np.abs(factor @ factor.T - gram).max() < 1e-13
    residual = np.abs(gram @ solution - right).max()
    assert residual < 1e-15 * 600 * np.abs(solution).max()
