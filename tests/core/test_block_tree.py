"""The factor as a tree of blocks is the factor."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core import block_tree


def posdef(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 5))
    return root @ root.T / size + np.eye(size)


@pytest.mark.parametrize("size", [1, 63, 65, 128, 200, 331, 1200])
def test_solves(size):
    matrix, right = posdef(size), np.random.default_rng(1).normal(size=(size, 3))
    tree = block_tree.factor(lambda rows, columns: jnp.asarray(matrix[rows, columns]), size)
    np.testing.assert_allclose(
        block_tree.solve(tree, jnp.asarray(right)), np.linalg.solve(matrix, right), atol=1e-10
    )
    rows = np.random.default_rng(2).normal(size=(7, size))
    lower = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(
        block_tree.divide(jnp.asarray(rows), tree) @ lower.T, rows, atol=1e-9
    )


def test_only_the_lower_half_is_asked_for():
    matrix = jnp.asarray(posdef(300))
    asked = []

    def entries(rows, columns):
        asked.append((rows.start, rows.stop, columns.start, columns.stop))
        return matrix[rows, columns]

    block_tree.factor(entries, 300)
    below_or_on = [(r, c) for r in range(300) for c in range(r + 1)]
    covered = {(r, c) for r0, r1, c0, c1 in asked for r in range(r0, r1) for c in range(c0, c1)}
    assert covered.issuperset(below_or_on)
    assert len(covered) - len(below_or_on) <= 3 * 128 * 127 // 2  # the corners, whole


def test_no_factor_is_visible():
    matrix = posdef(200)
    matrix[150, 150] = -1.0
    tree = block_tree.factor(lambda r, c: jnp.asarray(matrix[r, c]), 200)
    assert not np.isfinite(block_tree.solve(tree, jnp.ones((200, 1)))).all()
