"""Dense Cholesky factors and triangular solves, by `block_tree` or by LAPACK."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.core import block_tree, lapack
from finetti.core.block_tree import Corner, Split, Tree

# Below this size one call of LAPACK is faster; above the other, trees of blocks compile too long.
MIN_BLOCKED = 512
MAX_BLOCKED = 4096


def uses_blocks(size: int) -> bool:
    """Whether a matrix of that size is factored by blocks."""
    return MIN_BLOCKED <= size <= MAX_BLOCKED


def cholesky(
    matrix: Float[Array, "n n"], raised: Float[Array, "n"] | float = 0.0
) -> Float[Array, "n n"]:
    """The lower factor of a symmetric matrix with its diagonal raised; NaN on the diagonal if it is
    not positive definite."""
    size = matrix.shape[0]
    raised = jnp.broadcast_to(raised, (size,))
    if not uses_blocks(size):
        return lapack.cholesky(matrix + jnp.diag(raised))

    def entries(rows: slice, columns: slice) -> Array:
        block = matrix[rows, columns]
        return block + jnp.diag(raised[rows]) if rows == columns else block

    return jnp.concatenate(_rows(block_tree.factor(entries, size, refined=True), [], 0))


def _rows(tree: Tree, left: list[Array], right: int) -> list[Array]:
    """Strips of the factor, each put together once: ``left`` of the tree, and zeros ``right``."""
    if isinstance(tree, Corner):
        assert tree.lower is not None
        zero = jnp.zeros((tree.inverse.shape[0], right), tree.inverse.dtype)
        return [jnp.concatenate([*left, tree.lower, zero], axis=1)]
    below, middle = tree.below, tree.below.shape[1]
    top = _rows(tree.first, [part[:middle] for part in left], right + below.shape[0])
    return top + _rows(tree.second, [*(part[middle:] for part in left), below], right)


def _tree(factor: Float[Array, "n n"], corner: int) -> Tree:
    """A dense factor as a tree, its corners inverted."""
    size = factor.shape[0]
    if size <= corner:
        return block_tree.inverted(factor, refined=True)
    middle = block_tree.half(size)
    first, second = factor[:middle, :middle], factor[middle:, middle:]
    return Split(_tree(first, corner), factor[middle:, :middle], _tree(second, corner))


def solve_lower(
    factor: Float[Array, "n n"], right: Float[Array, "n k"], transpose: bool = False
) -> Float[Array, "n k"]:
    """G⁻¹B, or G⁻ᵀB: the gradient is B̄ = G⁻ᵀX̄, Ḡ = −tril(B̄Xᵀ), in the same blocks."""
    return _solve(factor, right, transpose)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _solve(factor: Array, right: Array, transpose: bool) -> Array:
    size = factor.shape[0]
    if not uses_blocks(size):
        return (lapack.solve_upper if transpose else lapack.solve_lower)(factor, right)
    tree = _tree(factor, block_tree.corner_size(size))
    return (block_tree.solve_upper if transpose else block_tree.solve_lower)(tree, right)


def _forward(factor: Array, right: Array, transpose: bool) -> Any:
    solved = solve_lower(factor, right, transpose)
    return solved, (factor, solved)


def _backward(transpose: bool, residuals: Any, cotangent: Array) -> Any:
    factor, solved = residuals
    adjoint = solve_lower(factor, cotangent, not transpose)
    outer = solved @ adjoint.T if transpose else adjoint @ solved.T
    return -jnp.tril(outer), adjoint


_solve.defvjp(_forward, _backward)


def solve_factored(factor: Float[Array, "n n"], right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """(GGᵀ)⁻¹B."""
    return solve_lower(factor, solve_lower(factor, right), transpose=True)
