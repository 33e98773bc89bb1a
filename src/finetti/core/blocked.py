"""Cholesky factors and triangular solves in blocks, so that almost all work is matrix products.

XLA's products run at the machine's rate on all its threads; the LAPACK behind JAX on CPU reaches a
fraction of it, and its own threads get in XLA's way. Below `SMALL` LAPACK is the faster one.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

SMALL = 512
BLOCK = 128
BASE = 64


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower factor of a symmetric matrix; NaN on the diagonal if it is not positive definite.

    Left-looking: n³/3 operations, each block column one product with all columns before it.
    """
    size = matrix.shape[0]
    if size < SMALL:
        return jnp.linalg.cholesky(matrix, symmetrize_input=False)
    # Columns are kept apart and joined: updates in place do not lower in `float64_inside`.
    columns: list[Array] = []
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        panel = matrix[start:, start:stop]
        if start:
            before = jnp.concatenate([column[start - size :] for column in columns], axis=1)
            panel = panel - before @ before[: stop - start].T
        corner, inverse = _corner(panel[: stop - start])
        below = _divide(panel[stop - start :], corner, inverse)
        columns.append(jnp.concatenate([corner, below]))
    return jnp.concatenate(
        [jnp.pad(column, ((size - column.shape[0], 0), (0, 0))) for column in columns], axis=1
    )


def _divide(
    rows: Float[Array, "m n"], corner: Float[Array, "n n"], inverse: Float[Array, "n n"]
) -> Float[Array, "m n"]:
    """X with X·cornerᵀ = rows. One step of refinement makes the inverse as good as substitution:

    without it the error grows with the condition of the corner, and `diagonal_floor` would not be
    enough (Higham, Accuracy and Stability, Section 12.2).
    """
    solved = rows @ inverse.T
    return solved + (rows - solved @ corner.T) @ inverse.T


def _corner(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """Factor and inverse factor of a diagonal block, by halves down to LAPACK's size."""
    size = matrix.shape[0]
    if size <= BASE:
        factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        identity = jnp.eye(size, dtype=matrix.dtype)
        return factor, solve_triangular(factor, identity, lower=True)
    half = size // 2
    first, first_inverse = _corner(matrix[:half, :half])
    below = _divide(matrix[half:, :half], first, first_inverse)
    second, second_inverse = _corner(matrix[half:, half:] - below @ below.T)
    zero = jnp.zeros((half, size - half), matrix.dtype)
    corner = -second_inverse @ (below @ first_inverse)
    return (
        jnp.block([[first, zero], [below, second]]),
        jnp.block([[first_inverse, zero], [corner, second_inverse]]),
    )


def solve_lower(
    factor: Float[Array, "n n"], right: Float[Array, "n k"], transpose: bool = False
) -> Float[Array, "n k"]:
    """G⁻¹B, or G⁻ᵀB: the gradient is B̄ = G⁻ᵀX̄, Ḡ = −tril(B̄Xᵀ), in the same blocks."""
    return _solve(factor, right, transpose)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _solve(factor: Array, right: Array, transpose: bool) -> Array:
    size = factor.shape[0]
    if size < SMALL:
        return solve_triangular(factor, right, lower=True, trans="T" if transpose else "N")
    solved = right[:0]
    starts = range(0, size, BLOCK)
    for start in reversed(starts) if transpose else starts:
        stop = min(start + BLOCK, size)
        part = right[start:stop]
        corner = factor[start:stop, start:stop]
        inverse = solve_triangular(corner, jnp.eye(stop - start, dtype=factor.dtype), lower=True)
        if transpose:
            part = part - factor[stop:, start:stop].T @ solved
            solved = jnp.concatenate([_divide(part.T, corner.T, inverse.T).T, solved])
        else:
            part = part - factor[start:stop, :start] @ solved
            solved = jnp.concatenate([solved, _divide(part.T, corner, inverse).T])
    return solved


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
    return solve_lower(factor, solve_lower(factor, right, False), True)
