"""A Cholesky factor as a tree of blocks: float32's fast route, almost all of it matrix products.

Halving keeps the products large and square and moves each entry only a few times; the blocks of
the matrix are asked for when they are needed, so that the matrix itself is never in memory.
Corners are inverted (products instead of substitution), which costs accuracy where they are
ill-conditioned: callers judge the answer, and solve in float64 (`core.solves`) where they must.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from finetti.core.products import transposed_product

# LAPACK factors blocks of this size; inverses are built up to the next one by products.
_BASE = 64
_CORNER, _LARGE_CORNER, _LARGE = 128, 256, 1024
# A diagonal block of this size (a power-of-two multiple of the base) is evaluated as a whole.
_EVALUATED = 1024

Entries = Callable[[slice, slice], Float[Array, "m n"]]


class Corner(NamedTuple):
    """G⁻¹ of a diagonal block A = GGᵀ."""

    inverse: Float[Array, "n n"]


class Split(NamedTuple):
    """G = [[first, 0], [below, second]]."""

    first: "Tree"
    below: Float[Array, "m n"]
    second: "Tree"


Tree = Corner | Split


def factor(entries: Entries, size: int) -> Tree:
    """The factor of the symmetric matrix whose blocks are ``entries(rows, columns)``.

    Only blocks on and below the diagonal are asked for. Without a factor, the tree has NaN in it.
    """
    corner = _LARGE_CORNER if size > _LARGE else _CORNER
    return _factor(entries, 0, size, corner)


def solve(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """(GGᵀ)⁻¹B."""
    return _solve_upper(tree, _solve_lower(tree, right))


def _factor(entries: Entries, start: int, stop: int, corner: int) -> Tree:
    block = slice(start, stop)
    if stop - start <= corner:
        return Corner(_inverse(entries(block, block)))
    if start and stop - start == _EVALUATED:
        # From here on the blocks are small, and so would be the products that update them.
        entries = _blocks_of(entries(block, block), start)
    middle = start + _half(stop - start)
    first = _factor(entries, start, middle, corner)
    below = divide(entries(slice(middle, stop), slice(start, middle)), first)

    def rest(rows: slice, columns: slice) -> Array:
        left, right = (below[part.start - middle : part.stop - middle] for part in (rows, columns))
        return entries(rows, columns) - left @ right.T

    return Split(first, below, _factor(rest, middle, stop, corner))


def _blocks_of(matrix: Float[Array, "n n"], start: int) -> Entries:
    """The blocks of a matrix whose first row and column have the number ``start``."""

    def entries(rows: slice, columns: slice) -> Array:
        return matrix[
            rows.start - start : rows.stop - start, columns.start - start : columns.stop - start
        ]

    return entries


def _half(size: int) -> int:
    """The largest power-of-two multiple of the base that leaves something over."""
    half = _BASE
    while 2 * half < size:
        half *= 2
    return half


def _inverse(block: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """G⁻¹ of a small block, by halves down to LAPACK's size."""
    size = block.shape[0]
    if size <= _BASE:
        lower = jnp.linalg.cholesky(block, symmetrize_input=False)
        return solve_triangular(lower, jnp.eye(size, dtype=block.dtype), lower=True)
    half = _half(size)
    first = _inverse(block[:half, :half])
    below = block[half:, :half] @ first.T
    second = _inverse(block[half:, half:] - below @ below.T)
    zero = jnp.zeros((half, size - half), block.dtype)
    return jnp.block([[first, zero], [-second @ (below @ first), second]])


def divide(rows: Float[Array, "m n"], tree: Tree) -> Float[Array, "m n"]:
    """X with XGᵀ = rows."""
    if isinstance(tree, Corner):
        return rows @ tree.inverse.T
    middle = tree.below.shape[1]
    left = divide(rows[:, :middle], tree.first)
    right = divide(rows[:, middle:] - left @ tree.below.T, tree.second)
    return jnp.concatenate([left, right], axis=1)


def _solve_lower(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    if isinstance(tree, Corner):
        return tree.inverse @ right
    middle = tree.below.shape[1]
    top = _solve_lower(tree.first, right[:middle])
    bottom = _solve_lower(tree.second, right[middle:] - tree.below @ top)
    return jnp.concatenate([top, bottom])


def _solve_upper(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    if isinstance(tree, Corner):
        return transposed_product(tree.inverse, right)
    middle = tree.below.shape[1]
    bottom = _solve_upper(tree.second, right[middle:])
    top = _solve_upper(tree.first, right[:middle] - transposed_product(tree.below, bottom))
    return jnp.concatenate([top, bottom])
