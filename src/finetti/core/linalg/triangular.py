"""Triangular solves whose gradients are triangular solves."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.core.linalg import lapack


def solve_lower(
    factor: Float[Array, "n n"], right: Float[Array, "n k"], transpose: bool = False
) -> Float[Array, "n k"]:
    """G⁻¹B, or G⁻ᵀB: the gradient is B̄ = G⁻ᵀX̄, Ḡ = −tril(B̄Xᵀ)."""
    return _solve(factor, right, transpose)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _solve(factor: Array, right: Array, transpose: bool) -> Array:
    return (lapack.solve_lower_transposed if transpose else lapack.solve_lower)(factor, right)


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
