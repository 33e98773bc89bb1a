"""The factor as a tree of blocks is the factor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.linalg import block_cholesky as block_tree


def posdef(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 5))
    return root @ root.T / size + np.eye(size)


@jax.jit
def solved(matrix, right):
    tree = block_tree.factor(block_tree.blocks_of(matrix), len(matrix))
    return block_tree.solve(tree, right)


@pytest.mark.parametrize("size", [1, 63, 65, 128, 200, 331, 1200])
def test_solves(size):
    matrix, right = posdef(size), np.random.default_rng(1).normal(size=(size, 3))
    np.testing.assert_allclose(solved(matrix, right), np.linalg.solve(matrix, right), atol=1e-10)


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


@pytest.mark.parametrize("row", [3, 150])
def test_no_factor_is_visible(row):
    matrix = posdef(200)
    matrix[row, row] = -1.0
    assert not np.isfinite(solved(matrix, np.ones((200, 1)))).all()


def test_corners_grow_with_the_matrix():
    assert [block_tree.corner_size(size) for size in (100, 1024, 1025, 4096, 4097)] == [
        128,
        128,
        256,
        256,
        512,
    ]
