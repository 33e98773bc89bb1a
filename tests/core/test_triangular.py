"""Triangular solves and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.linalg import triangular


@pytest.fixture
def matrix():
    root = np.random.default_rng(0).normal(size=(17, 17))
    return jnp.asarray(root @ root.T + 0.1 * np.eye(17))


@pytest.mark.parametrize("transpose", [False, True])
def test_solves_and_their_gradients_are_those_of_lapack(matrix, transpose):
    factor = jnp.linalg.cholesky(matrix)
    right = jnp.asarray(np.random.default_rng(1).normal(size=(17, 3)))

    def slow(factor, right):
        return jax.scipy.linalg.solve_triangular(
            factor, right, lower=True, trans="T" if transpose else "N"
        )

    def fast(factor, right):
        return triangular.solve_lower(factor, right, transpose)

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
        triangular.solve_factored(jnp.linalg.cholesky(matrix), right),
        np.linalg.solve(matrix, right),
        atol=1e-10,
    )
