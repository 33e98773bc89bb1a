"""Conjugate gradients for many right-hand sides at once: one search space for all of them.

Every iteration adds as many directions as there are columns, so that outlying eigenvalues are found
many at a time: far fewer products with the matrix than column by column.

References: O'Leary (1980); Dubrulle (2001), whose orthonormal residuals are kept here, in the inner
product of the preconditioner.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

MAX_ITERATIONS = 500
_RESTARTS = 3

Operator = Callable[[Float[Array, "n k"]], Float[Array, "n k"]]


class Iterations(NamedTuple):
    """How conjugate gradients went: iterations and the largest relative residual at the end."""

    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class _State(NamedTuple):
    """Residuals are ``basis @ mixture``; the basis is orthonormal under the preconditioner."""

    solution: Float[Array, "n k"]
    basis: Float[Array, "n k"]
    directions: Float[Array, "n k"]
    mixture: Float[Array, "k k"]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]


def conjugate_gradients(
    matvec: Operator, right: Float[Array, "n k"], precondition: Operator, tolerance: float
) -> tuple[Float[Array, "n k"], Iterations]:
    """A⁻¹B for a positive-definite A, until every column has ‖r‖ ≤ tolerance·‖b‖.

    The residual of the recursion drifts from the true one by rounding; the iteration starts again
    from the true one as long as that gains anything.
    """
    lengths = jnp.sqrt(jnp.sum(right**2, axis=0))
    unit = right / jnp.where(lengths > 0, lengths, 1.0)[None, :]

    def goes_on(state: Any) -> Array:
        _, _, residual, before, iterations, starts = state
        unfinished = (residual > tolerance) & (iterations < MAX_ITERATIONS) & (starts < _RESTARTS)
        return unfinished & (residual < 0.5 * before)

    def start(state: Any) -> Any:
        solution, left, residual, _, iterations, starts = state
        end = _iterate(matvec, left, precondition, tolerance, iterations)
        candidate = solution + end.solution
        left_now = unit - matvec(candidate)
        now = _largest(left_now)
        better = now < residual
        return (
            jnp.where(better, candidate, solution),
            jnp.where(better, left_now, left),
            jnp.minimum(now, residual),
            residual,
            end.iterations,
            starts + 1,
        )

    zero = jnp.zeros((), jnp.int32)
    first = (jnp.zeros_like(unit), unit, _largest(unit), jnp.asarray(jnp.inf, unit.dtype))
    solution, _, residual, _, iterations, _ = jax.lax.while_loop(
        goes_on, start, (*first, zero, zero)
    )
    return solution * lengths[None, :], Iterations(iterations, residual)


def _iterate(
    matvec: Operator, right: Array, precondition: Operator, tolerance: float, iterations: Array
) -> _State:
    def step(state: _State) -> _State:
        images = matvec(state.directions)
        solve = _inverse(state.directions.T @ images)
        solution = state.solution + state.directions @ solve(state.mixture)
        left = state.basis - images @ solve(jnp.eye(images.shape[1], dtype=images.dtype))
        basis, whitened, mixture = _orthonormal(left, precondition(left))
        directions = whitened + state.directions @ mixture.T
        mixture = mixture @ state.mixture
        residual = _largest(basis @ mixture)
        return _State(solution, basis, directions, mixture, residual, state.iterations + 1)

    basis, directions, mixture = _orthonormal(right, precondition(right))
    state = _State(jnp.zeros_like(right), basis, directions, mixture, _largest(right), iterations)
    return jax.lax.while_loop(
        lambda state: (state.residual > tolerance) & (state.iterations < MAX_ITERATIONS),
        step,
        state,
    )


def _orthonormal(vectors: Array, whitened: Array) -> tuple[Array, Array, Array]:
    """Q, M⁻¹Q and Z with ``vectors`` = QZ and QᵀM⁻¹Q = I; directions without length become zero."""
    gram = _symmetric(vectors.T @ whitened)
    scale = _lengths(gram)
    values, axes = jnp.linalg.eigh(gram / (scale[:, None] * scale[None, :]))
    size = values.shape[0]
    kept = values > 10 * size * jnp.finfo(values.dtype).eps * values[-1]
    roots = jnp.sqrt(jnp.where(kept, values, 1.0))
    to_basis = axes / scale[:, None] * jnp.where(kept, 1 / roots, 0.0)[None, :]
    mixture = jnp.where(kept, roots, 0.0)[:, None] * axes.T * scale[None, :]
    return vectors @ to_basis, whitened @ to_basis, mixture


def _inverse(energies: Float[Array, "k k"]) -> Operator:
    """B ↦ (SᵀAS)⁻¹B; directions that are zero stay zero."""
    energies = _symmetric(energies)
    scale = _lengths(energies)
    size = energies.shape[0]
    floor = size * jnp.finfo(energies.dtype).eps
    dead = jnp.diagonal(energies) <= 0
    scaled = energies / (scale[:, None] * scale[None, :])
    factor = jnp.linalg.cholesky(scaled + jnp.diag(jnp.where(dead, 1.0, floor)))
    return lambda right: (
        jax.scipy.linalg.cho_solve((factor, True), right / scale[:, None]) / scale[:, None]
    )


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + matrix.T)


def _lengths(gram: Array) -> Array:
    """Square roots of the diagonal, 1 where there is nothing to divide by."""
    diagonal = jnp.diagonal(gram)
    return jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))


def _largest(columns: Float[Array, "n k"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.max(jnp.sum(columns**2, axis=0)))
