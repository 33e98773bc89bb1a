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
from jaxtyping import Array, Bool, Float, Int

from finetti.core.linalg import lapack

MAX_ITERATIONS = 500
MAX_RESTARTS = 4

Operator = Callable[[Float[Array, "n k"]], Float[Array, "n k"]]


class Iterations(NamedTuple):
    """How conjugate gradients went: iterations, and a bound on ‖x̂ − x‖/‖x̂‖ for every column."""

    iterations: Int[Array, ""]
    relative_error: Float[Array, "k"]


class _State(NamedTuple):
    """Residuals are ``basis @ mixture``; the basis is orthonormal under the preconditioner."""

    solution: Float[Array, "n k"]
    basis: Float[Array, "n k"]
    directions: Float[Array, "n k"]
    mixture: Float[Array, "k k"]
    unfinished: Bool[Array, ""]
    iterations: Int[Array, ""]


def conjugate_gradients(
    matvec: Operator,
    right: Float[Array, "n k"],
    precondition: Operator,
    least: Float[Array, ""],
    rtol: float | Float[Array, ""],
) -> tuple[Float[Array, "n k"], Iterations]:
    """A⁻¹B for A ⪰ least·I, until ‖x̂ − x‖ ≤ rtol·‖x̂‖ in every column, which ‖r‖ ≤ rtol·least·‖x̂‖
    ensures.

    The residual of the recursion drifts from the true one by rounding; the iteration starts again
    from the true one as long as that gains anything. Whether it arrived stands in the second
    result: it must be looked at.
    """
    lengths = _lengths_of(right)
    unit = right / jnp.where(lengths > 0, lengths, 1.0)[None, :]

    def error(residual: Array, solution: Array) -> Float[Array, "k"]:
        sizes = least * _lengths_of(solution)
        # A column of zeros is solved; another one without a solution yet is not.
        bound = _lengths_of(residual) / jnp.where(sizes > 0, sizes, 1.0)
        return jnp.where(lengths > 0, bound, 0.0)

    def goes_on(state: Any) -> Array:
        solution, residual, before, iterations, starts = state
        now = jnp.max(error(residual, solution))
        unfinished = (now > rtol) & (iterations < MAX_ITERATIONS) & (starts < MAX_RESTARTS)
        return unfinished & (now < 0.5 * before)

    def start(state: Any) -> Any:
        solution, residual, _, iterations, starts = state
        end = _iterate(
            matvec,
            residual,
            precondition,
            lambda left, step: jnp.any(error(left, solution + step) > rtol),
            iterations,
        )
        candidate = solution + end.solution
        left = unit - matvec(candidate)
        better = jnp.max(_lengths_of(left)) < jnp.max(_lengths_of(residual))
        return (
            jnp.where(better, candidate, solution),
            jnp.where(better, left, residual),
            jnp.where(starts == 0, jnp.inf, jnp.max(error(residual, solution))),
            end.iterations,
            starts + 1,
        )

    zero = jnp.zeros((), jnp.int32)
    first = (jnp.zeros_like(unit), unit, jnp.asarray(jnp.inf, unit.dtype), zero, zero)
    solution, residual, _, iterations, _ = jax.lax.while_loop(goes_on, start, first)
    return solution * lengths[None, :], Iterations(iterations, error(residual, solution))


def _iterate(
    matvec: Operator,
    right: Array,
    precondition: Operator,
    is_unfinished: Callable[[Array, Array], Array],
    iterations: Array,
) -> _State:
    def step(state: _State) -> _State:
        images = matvec(state.directions)
        solve = _inverse(state.directions.T @ images)
        solution = state.solution + state.directions @ solve(state.mixture)
        left = state.basis - images @ solve(jnp.eye(images.shape[1], dtype=images.dtype))
        basis, whitened, mixture = _orthonormal(left, precondition(left))
        directions = whitened + state.directions @ mixture.T
        mixture = mixture @ state.mixture
        unfinished = is_unfinished(basis @ mixture, solution)
        return _State(solution, basis, directions, mixture, unfinished, state.iterations + 1)

    basis, directions, mixture = _orthonormal(right, precondition(right))
    state = _State(
        jnp.zeros_like(right), basis, directions, mixture, jnp.ones((), bool), iterations
    )
    return jax.lax.while_loop(
        lambda state: state.unfinished & (state.iterations < MAX_ITERATIONS), step, state
    )


def _orthonormal(vectors: Array, whitened: Array) -> tuple[Array, Array, Array]:
    """Q, M⁻¹Q and Z with ``vectors`` = QZ and QᵀM⁻¹Q = I; directions without length become zero."""
    gram = _symmetric(vectors.T @ whitened)
    scale = _lengths(gram)
    values, axes = lapack.eigh(gram / (scale[:, None] * scale[None, :]))
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
    factor = lapack.cholesky(scaled + jnp.diag(jnp.where(dead, 1.0, floor)))

    def solve(right: Array) -> Array:
        half = lapack.solve_lower(factor, right / scale[:, None])
        return lapack.solve_lower_transposed(factor, half) / scale[:, None]

    return solve


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + matrix.T)


def _lengths(gram: Array) -> Array:
    """Square roots of the diagonal, 1 where there is nothing to divide by."""
    diagonal = jnp.diagonal(gram)
    return jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))


def _lengths_of(columns: Float[Array, "n k"]) -> Float[Array, "k"]:
    return jnp.sqrt(jnp.sum(columns**2, axis=0))
