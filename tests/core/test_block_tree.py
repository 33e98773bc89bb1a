"""The factor as a tree of blocks is the factor."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core import block_tree


def posdef(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 5))
    return root @ root.T / size + np.eye(size)


@pytest.mark.parametrize("size", [1, 63, 65, 128, 200, 331])
def test_solves(size):
    matrix, right = posdef(size), np.random.default_rng(1).normal(size=(size, 3))
    asked = []

    def entries(rows, columns):
        asked.append((rows.start, columns.stop))
        return jnp.asarray(matrix[rows, columns])

    tree = block_tree.factor(entries, size)
    np.testing.assert_allclose(
        block_tree.solve(tree, jnp.asarray(right)), np.linalg.solve(matrix, right), atol=1e-10
    )
    rows = np.random.default_rng(2).normal(size=(7, size))
    lower = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(
        block_tree.divide(jnp.asarray(rows), tree) @ lower.T, rows, atol=1e-9
    )


def test_only_the_lower_half_is_asked_for():
    matrix = np.tril(posdef(300))

    def entries(rows, columns):
        assert rows.start >= columns.start
        return jnp.asarray(matrix[rows, columns])

    # LAPACK reads the lower half of a corner; products by blocks read whole corners.
    full = np.tril(matrix) + np.tril(matrix, -1).T
    tree = block_tree.factor(
        lambda rows, columns: (entries(rows, columns), jnp.asarray(full[rows, columns]))[1], 300
    )
    right = np.ones((300, 1))
    np.testing.assert_allclose(
        block_tree.solve(tree, jnp.asarray(right)), np.linalg.solve(full, right), atol=1e-10
    )


def test_no_factor_is_visible():
    matrix = posdef(200)
    matrix[150, 150] = -1.0
    tree = block_tree.factor(lambda r, c: jnp.asarray(matrix[r, c]), 200)
    assert not np.isfinite(block_tree.solve(tree, jnp.ones((200, 1)))).all()
