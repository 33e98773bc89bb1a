"""A Cholesky factor as a tree of blocks, almost all of it matrix products.

XLA's products run at the machine's rate on all its threads; the LAPACK behind JAX on CPU reaches a
fraction of it, and its own threads get in XLA's way. Halving keeps the products large and square
and moves each entry only a few times; the blocks of the matrix are asked for when they are needed,
so that the matrix itself is never in memory. Corners are inverted (products instead of
substitution), which costs accuracy where they are ill-conditioned: ``refined`` factors correct each
quotient once, others leave it to their caller to judge the answer.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.core import lapack
from finetti.core.products import transposed_product

# LAPACK factors blocks of this size; inverses are built by products up to corners that grow with
# the matrix: larger products, and fewer of them to compile.
_LAPACK_ROWS = 64
_CORNER_ROWS = {1024: 128, 4096: 256}
_MAX_CORNER_ROWS = 512
# A diagonal block of this size (a power-of-two multiple of the base) is evaluated as a whole.
_EVALUATED_ROWS = 1024

Entries = Callable[[slice, slice], Float[Array, "m n"]]


class Corner(NamedTuple):
    """G⁻¹ of a diagonal block A = GGᵀ, and G itself where quotients are refined."""

    inverse: Float[Array, "n n"]
    lower: Float[Array, "n n"] | None


class Split(NamedTuple):
    """G = [[first, 0], [below, second]]."""

    first: "Tree"
    below: Float[Array, "m n"]
    second: "Tree"


Tree = Corner | Split


def factor(entries: Entries, size: int, *, refined: bool) -> Tree:
    """The factor of the symmetric matrix whose blocks are ``entries(rows, columns)``.

    Only blocks on and below the diagonal are asked for. Without a factor, the tree has NaN in it,
    at the latest in its last corner (`exists`). ``refined`` makes inverses as good as substitution:
    without it the error grows with the condition of the corners (Higham, Accuracy and Stability,
    Section 12.2).
    """
    return _factor(entries, 0, size, corner_size(size), refined)


def corner_size(size: int) -> int:
    """The most rows of a corner in the factor of so many rows."""
    return next((rows for most, rows in _CORNER_ROWS.items() if size <= most), _MAX_CORNER_ROWS)


def exists(tree: Tree) -> Bool[Array, ""]:
    """Whether the matrix had a factor: what fails anywhere spoils the last corner."""
    while isinstance(tree, Split):
        tree = tree.second
    return jnp.all(jnp.isfinite(tree.inverse))


def solve(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """(GGᵀ)⁻¹B."""
    # Two products in a row must not become one by another, slower order of their operands.
    return solve_upper(tree, jax.lax.optimization_barrier(solve_lower(tree, right)))


def _factor(entries: Entries, start: int, stop: int, corner: int, refined: bool) -> Tree:
    block = slice(start, stop)
    if stop - start <= corner:
        return _corner(entries(block, block), refined)
    if start and stop - start == _EVALUATED_ROWS:
        # From here on the blocks are small, and so would be the products that update them.
        entries = blocks_of(entries(block, block), start)
    middle = start + half(stop - start)
    first = _factor(entries, start, middle, corner, refined)
    below = divide(entries(slice(middle, stop), slice(start, middle)), first)

    def rest(rows: slice, columns: slice) -> Array:
        left, right = (below[part.start - middle : part.stop - middle] for part in (rows, columns))
        return entries(rows, columns) - left @ right.T

    return Split(first, below, _factor(rest, middle, stop, corner, refined))


def blocks_of(matrix: Float[Array, "n n"], start: int = 0) -> Entries:
    """The blocks of a matrix whose first row and column have the number ``start``."""

    def entries(rows: slice, columns: slice) -> Array:
        return matrix[
            rows.start - start : rows.stop - start, columns.start - start : columns.stop - start
        ]

    return entries


def half(size: int) -> int:
    """The largest power-of-two multiple of the base that leaves something over."""
    half = _LAPACK_ROWS
    while 2 * half < size:
        half *= 2
    return half


def _corner(block: Float[Array, "n n"], refined: bool) -> Corner:
    """G⁻¹ of a small block, by halves down to LAPACK's size."""
    size = block.shape[0]
    if size <= _LAPACK_ROWS:
        # LAPACK works by columns: the transpose of a symmetric block is there without a copy.
        return inverted(lapack.cholesky(block.T), refined)
    middle = half(size)
    first = _corner(block[:middle, :middle], refined)
    below = divide(block[middle:, :middle], first)
    second = _corner(block[middle:, middle:] - below @ below.T, refined)
    return _joined(first, below, second)


def inverted(lower: Float[Array, "n n"], refined: bool) -> Corner:
    """The corner of a known factor."""
    identity = jnp.eye(lower.shape[0], dtype=lower.dtype)
    # By columns again: (G⁻ᵀ)ᵀ lies in memory as products by rows want G⁻¹.
    inverse = lapack.solve_upper(lower, identity).T
    return Corner(inverse, lower if refined else None)


def _joined(first: Corner, below: Float[Array, "m n"], second: Corner) -> Corner:
    # As an array: a constant would be built in by a loop that asks at every entry where it is.
    zero = jax.lax.optimization_barrier(jnp.zeros(below.shape[::-1], below.dtype))
    corner = -second.inverse @ (below @ first.inverse)
    inverse = jnp.block([[first.inverse, zero], [corner, second.inverse]])
    if first.lower is None or second.lower is None:
        return Corner(inverse, None)
    return Corner(inverse, jnp.block([[first.lower, zero], [below, second.lower]]))


def divide(rows: Float[Array, "m n"], tree: Tree) -> Float[Array, "m n"]:
    """X with XGᵀ = rows."""
    return jnp.concatenate(_quotients(rows, tree), axis=1)


def _quotients(rows: Float[Array, "m n"], tree: Tree) -> list[Array]:
    """The columns of X, corner by corner: put together only where a product needs them."""
    if isinstance(tree, Corner):
        quotient = rows @ tree.inverse.T
        if tree.lower is not None:
            quotient = quotient + (rows - quotient @ tree.lower.T) @ tree.inverse.T
        return [quotient]
    middle = tree.below.shape[1]
    left = _quotients(rows[:, :middle], tree.first)
    joined = jnp.concatenate(left, axis=1)
    return [joined, *_quotients(rows[:, middle:] - joined @ tree.below.T, tree.second)]


def solve_lower(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """G⁻¹B."""
    if isinstance(tree, Corner):
        solved = tree.inverse @ right
        if tree.lower is None:
            return solved
        return solved + tree.inverse @ (right - tree.lower @ solved)
    middle = tree.below.shape[1]
    top = solve_lower(tree.first, right[:middle])
    bottom = solve_lower(tree.second, right[middle:] - tree.below @ top)
    return _stacked(top, bottom)


def solve_upper(tree: Tree, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """G⁻ᵀB."""
    if isinstance(tree, Corner):
        solved = transposed_product(tree.inverse, right)
        if tree.lower is None:
            return solved
        missing = right - transposed_product(tree.lower, solved)
        return solved + transposed_product(tree.inverse, missing)
    middle = tree.below.shape[1]
    bottom = solve_upper(tree.second, right[middle:])
    top = solve_upper(tree.first, right[:middle] - transposed_product(tree.below, bottom))
    return _stacked(top, bottom)


def _stacked(top: Float[Array, "m k"], bottom: Float[Array, "n k"]) -> Float[Array, "m+n k"]:
    """Copied once: where a loop takes it in, it asks at every entry which of the two it is."""
    return jax.lax.optimization_barrier(jnp.concatenate([top, bottom]))
