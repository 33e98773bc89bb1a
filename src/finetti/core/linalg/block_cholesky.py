"""A Cholesky factor as a tree of blocks, almost all of it matrix products.

XLA's products run at the machine's rate on all its threads; the LAPACK behind JAX on CPU reaches a
fraction of it in float32, and its own threads get in XLA's way. Halving keeps the products large
and square and moves each entry only a few times; the blocks of the matrix are asked for when they
are needed, so that the matrix itself is never in memory. Corners are inverted (products instead of
substitution), which costs accuracy where they are ill-conditioned (Higham, Accuracy and Stability,
Section 12.2): the caller judges the answer.

Only in float32: in float64 LAPACK is about as fast, and one call compiles in no time.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.core.linalg import lapack
from finetti.core.linalg.matrix_products import transposed_product

# Inverses are built up to corners that grow with the matrix, of halves that LAPACK factors:
# larger products, and fewer of them to compile.
_CORNER_ROWS = {1024: 128, 4096: 256}
_MAX_CORNER_ROWS = 512
# A diagonal block of this size (a power-of-two multiple of all corners) is evaluated as a whole.
_EVALUATED_ROWS = 1024

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

    Only blocks on and below the diagonal are asked for. Without a factor, there is NaN in what
    `solve` gives.
    """
    return _factor(entries, 0, size, corner_size(size))


def corner_size(size: int) -> int:
    """The most rows of a corner in the factor of so many rows."""
    return next((rows for most, rows in _CORNER_ROWS.items() if size <= most), _MAX_CORNER_ROWS)


def solve(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """(GGᵀ)⁻¹B."""
    # Two products in a row must not become one by another, slower order of their operands.
    return _solve_upper(tree, jax.lax.optimization_barrier(_solve_lower(tree, right)))


def _factor(entries: Entries, start: int, stop: int, corner: int) -> Tree:
    block = slice(start, stop)
    if stop - start <= corner:
        return _corner(entries(block, block), corner // 2)
    if start and stop - start == _EVALUATED_ROWS:
        # From here on the blocks are small, and so would be the products that update them.
        entries = blocks_of(entries(block, block), start)
    middle = start + _half(stop - start, corner)
    first = _factor(entries, start, middle, corner)
    below = _divide(entries(slice(middle, stop), slice(start, middle)), first)

    def rest(rows: slice, columns: slice) -> Array:
        left, right = (below[part.start - middle : part.stop - middle] for part in (rows, columns))
        return entries(rows, columns) - left @ right.T

    return Split(first, below, _factor(rest, middle, stop, corner))


def blocks_of(matrix: Float[Array, "n n"], start: int = 0) -> Entries:
    """The blocks of a matrix whose first row and column have the number ``start``."""

    def entries(rows: slice, columns: slice) -> Array:
        return matrix[
            rows.start - start : rows.stop - start, columns.start - start : columns.stop - start
        ]

    return entries


def _half(size: int, corner: int) -> int:
    """The largest power-of-two multiple of a corner that leaves something over."""
    half = corner
    while 2 * half < size:
        half *= 2
    return half


def _corner(block: Float[Array, "n n"], half: int) -> Corner:
    """G⁻¹ of a small block: LAPACK's, or two of these put together."""
    size = block.shape[0]
    if size <= half:
        identity = jnp.eye(size, dtype=block.dtype)
        # LAPACK works by columns: the transpose of a symmetric block is there without a copy, and
        # (G⁻ᵀ)ᵀ lies in memory as products by rows want G⁻¹.
        return Corner(lapack.solve_lower_transposed(lapack.cholesky(block.T), identity).T)
    first = _corner(block[:half, :half], half)
    below = _divide(block[half:, :half], first)
    second = _corner(block[half:, half:] - below @ below.T, half)
    # As an array: a constant would be built in by a loop that asks at every entry where it is.
    zero = jax.lax.optimization_barrier(jnp.zeros(below.shape[::-1], below.dtype))
    corner = -second.inverse @ (below @ first.inverse)
    return Corner(jnp.block([[first.inverse, zero], [corner, second.inverse]]))


def _divide(rows: Float[Array, "m n"], tree: Tree) -> Float[Array, "m n"]:
    """X with XGᵀ = rows."""
    return jnp.concatenate(_quotients(rows, tree), axis=1)


def _quotients(rows: Float[Array, "m n"], tree: Tree) -> list[Array]:
    """The columns of X, corner by corner: put together only where a product needs them."""
    if isinstance(tree, Corner):
        return [rows @ tree.inverse.T]
    middle = tree.below.shape[1]
    left = _quotients(rows[:, :middle], tree.first)
    joined = jnp.concatenate(left, axis=1)
    return [joined, *_quotients(rows[:, middle:] - joined @ tree.below.T, tree.second)]


def _solve_lower(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """G⁻¹B."""
    if isinstance(tree, Corner):
        return tree.inverse @ right
    middle = tree.below.shape[1]
    top = _solve_lower(tree.first, right[:middle])
    bottom = _solve_lower(tree.second, right[middle:] - tree.below @ top)
    return _stacked(top, bottom)


def _solve_upper(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """G⁻ᵀB."""
    if isinstance(tree, Corner):
        return transposed_product(tree.inverse, right)
    middle = tree.below.shape[1]
    bottom = _solve_upper(tree.second, right[middle:])
    top = _solve_upper(tree.first, right[:middle] - transposed_product(tree.below, bottom))
    return _stacked(top, bottom)


def _stacked(top: Float[Array, "m k"], bottom: Float[Array, "n k"]) -> Float[Array, "m+n k"]:
    """Copied once: where a loop takes it in, it asks at every entry which of the two it is."""
    return jax.lax.optimization_barrier(jnp.concatenate([top, bottom]))
