"""Positive-definite solves: a value, a status with advice, and gradients by the implicit rule."""

import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float, Int

from finetti.core.linalg import lapack
from finetti.core.linalg.triangular import solve_factored, solve_lower

# Relative accuracy that a float64 solve must still deliver before we call it ill-conditioned.
_SOLVE_RTOL = 1e-6
_ATTEMPTS, _ESCALATION = 6, 1e3


class Status(enum.IntEnum):
    """How a positive-definite solve went; ``advice`` says what to do about it."""

    SOLVED = 0
    ILL_CONDITIONED = 1
    FLOORED = 2
    REPAIRED = 3
    FAILED = 4

    @property
    def advice(self) -> str:
        """One sentence: what happened and what to do next."""
        return _ADVICE[self]


_ADVICE = {
    Status.SOLVED: "Solved.",
    Status.FLOORED: "The ridge is below what float64 can resolve and was raised to the diagonal "
    "floor; raise the ridge if the answer must depend on it.",
    Status.ILL_CONDITIONED: "Solved, but the condition number leaves fewer than six digits; raise "
    "the ridge or merge near-duplicate keys.",
    Status.REPAIRED: "The matrix was not positive definite in float64; the diagonal was raised "
    "until it was. Raise the ridge, or check that the kernel is positive definite.",
    Status.FAILED: "The matrix has no Cholesky factor even with a raised diagonal; check that the "
    "entries are finite and the matrix is symmetric positive definite.",
}


def diagonal_floor(size: int, dimension: int = 1) -> float:
    """Relative diagonal shift at which float64 Cholesky provably succeeds.

    A symmetric matrix with unit diagonal factors in floating point if its least eigenvalue exceeds
    about n(n+1)u (Higham, Accuracy and Stability, Theorem 10.7); computing a Gram matrix of
    ``dimension``-vectors perturbs it by about n·d·u more. Twice their sum is the floor.

    >>> f"{diagonal_floor(256, 16):.1e}"
    '1.6e-11'
    """
    unit_roundoff = 2.0**-53
    return 2.0 * size * (size + 1 + dimension) * unit_roundoff


def at_least_floor(
    noise: Float[Array, "*n"],
    diagonal: Float[Array, " n"],
    dimension: int,
    size: int | None = None,
) -> Float[Array, " n"]:
    """The ridge of each key, not below `diagonal_floor` times its own K(k, k): one rule for all.

    ``size`` is the number of keys there may be, where that is more than there are now.
    """
    floor = diagonal_floor(size or diagonal.shape[0], dimension)
    raised = jnp.maximum(noise, floor * diagonal)
    # A key at the origin of a linear kernel has no row at all; any positive noise will do.
    return jnp.where(raised <= 0, 1.0, raised)


def safe_cholesky(
    matrix: Float[Array, "n n"],
) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """Lower Cholesky factor of A + shift·diag(A) and the shift: 0 unless A itself does not factor.

    The shift starts at the diagonal floor and grows a thousandfold per attempt; if the last one
    fails too, the factor is NaN, which the callers turn into a status.
    """
    return first_that_factors(
        lambda shift: lapack.cholesky(matrix + jnp.diag(shift * jnp.diagonal(matrix))),
        matrix.dtype,
        matrix.shape[0],
    )


def first_that_factors(
    factor: Callable[[Float[Array, ""]], Float[Array, "n n"]], dtype: DTypeLike, size: int
) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """``factor(shift)`` and the first shift with a factor: 0, floor, floor·1e3, …

    One loop with the first attempt in it, so that the factorization is compiled once. If the last
    attempt fails too, what it left is returned.
    """
    floor = diagonal_floor(size)

    def attempt(state: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        _, _, done = state
        shift = jnp.where(done == 0, 0.0, floor * _ESCALATION ** (done - 1))
        return factor(shift), shift, done + 1

    def fails(state: tuple[Any, Array, Array]) -> Bool[Array, ""]:
        found, _, done = state
        # A factorization that fails somewhere has no number on its diagonal from there on.
        return (done == 0) | (~jnp.all(jnp.isfinite(jnp.diagonal(found))) & (done <= _ATTEMPTS))

    zero = jnp.zeros((), dtype)
    nothing = jnp.zeros((size, size), dtype)
    found, shift, _ = jax.lax.while_loop(fails, attempt, (nothing, zero, zero))
    return found, shift


def posdef_solve(
    matrix: Float[Array, "n n"], right: Float[Array, "n k"]
) -> tuple[Float[Array, "n k"], Float[Array, "n n"], Float[Array, ""]]:
    """A⁻¹B by one Cholesky factorization; the factor and the shift it needed are for diagnosis.

    The gradient of A⁻¹B reuses the factor: with X = A⁻¹B and Y = A⁻¹X̄, B̄ = Y and Ā = −YXᵀ. The
    factor and the shift carry no gradient.
    """
    factor, shift = safe_cholesky(jax.lax.stop_gradient(matrix))
    return _factored_solve(matrix, factor, right), factor, shift


@jax.custom_vjp
def _factored_solve(
    matrix: Float[Array, "n n"], factor: Float[Array, "n n"], right: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """A⁻¹B with A's factor given. The backward pass calls it again: gradients of any order."""
    return solve_factored(factor, right)


def _solve_forward(matrix: Array, factor: Array, right: Array) -> Any:
    value = _factored_solve(matrix, factor, right)
    return value, (matrix, factor, value)


def _solve_backward(residuals: Any, cotangent: Any) -> Any:
    matrix, factor, value = residuals
    adjoint = _factored_solve(matrix, factor, cotangent)
    return -adjoint @ value.T, jnp.zeros_like(factor), adjoint


_factored_solve.defvjp(_solve_forward, _solve_backward)


def posdef_factor(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower Cholesky factor G of A, by `safe_cholesky`.

    The gradient is Ā = sym(G⁻ᵀ Φ(GᵀḠ) G⁻¹), Φ = lower triangle with half the diagonal.

    Reference: Murray, Differentiation of the Cholesky decomposition (2016).
    """
    return _known_factor(matrix, safe_cholesky(jax.lax.stop_gradient(matrix))[0])


@jax.custom_vjp
def _known_factor(matrix: Float[Array, "n n"], factor: Float[Array, "n n"]) -> Array:
    """A's factor, computed already. The backward pass calls it again: gradients of any order."""
    return factor


def _factor_forward(matrix: Array, factor: Array) -> Any:
    factor = _known_factor(matrix, factor)
    return factor, (matrix, factor)


def _factor_backward(residuals: Any, cotangent: Array) -> Any:
    factor = _known_factor(*residuals)
    middle = jnp.tril(factor.T @ cotangent)
    middle = middle - 0.5 * jnp.diag(jnp.diagonal(middle))
    left = solve_lower(factor, middle, True)
    gradient = solve_lower(factor, left.T, True).T
    return 0.5 * (gradient + gradient.T), jnp.zeros_like(factor)


_known_factor.defvjp(_factor_forward, _factor_backward)


def gaussian_log_density(
    covariance: Float[Array, "n n"], samples: Float[Array, "n k"]
) -> Float[Array, ""]:
    """Σ_j log N(v_j; 0, A) over the columns v_j, one factorization for value and gradient.

    With α = A⁻¹V the gradient is Ā = ½(ααᵀ − k·A⁻¹), V̄ = −α.
    """
    factor, _ = safe_cholesky(jax.lax.stop_gradient(covariance))
    return _factored_density(covariance, factor, samples)


@jax.custom_vjp
def _factored_density(
    covariance: Float[Array, "n n"], factor: Float[Array, "n n"], samples: Float[Array, "n k"]
) -> Float[Array, ""]:
    return _density_forward(covariance, factor, samples)[0]


def _density_forward(covariance: Array, factor: Array, samples: Array) -> Any:
    alpha = _factored_solve(covariance, factor, samples)
    size, count = samples.shape
    half_log_determinant = jnp.sum(jnp.log(jnp.diagonal(factor)))
    value = (
        -0.5 * jnp.sum(samples * alpha)
        - count * half_log_determinant
        - 0.5 * count * size * jnp.log(2 * jnp.pi).astype(covariance.dtype)
    )
    return value, (covariance, factor, alpha)


def _density_backward(residuals: Any, cotangent: Any) -> Any:
    covariance, factor, alpha = residuals
    identity = jnp.eye(factor.shape[0], dtype=factor.dtype)
    inverse = _factored_solve(covariance, factor, identity)
    gradient = 0.5 * (alpha @ alpha.T - alpha.shape[1] * inverse)
    return cotangent * gradient, jnp.zeros_like(factor), -cotangent * alpha


_factored_density.defvjp(_density_forward, _density_backward)


def condition_number(matrix: Float[Array, "n n"], factor: Float[Array, "n n"]) -> Float[Array, ""]:
    """‖A‖₁‖A⁻¹‖₁ with the inverse's norm by Hager's iteration, as LAPACK's ``pocon`` has it.

    ‖A‖₁ is exact; the estimate of ‖A⁻¹‖₁ never exceeds it and is usually equal.
    """
    size = matrix.shape[0]

    def solve(vector: Array) -> Array:
        return solve_factored(factor, vector[:, None])[:, 0]

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        vector, best = state
        image = solve(vector)
        best = jnp.maximum(best, jnp.sum(jnp.abs(image)))
        signs = jnp.where(image >= 0, 1.0, -1.0).astype(matrix.dtype)
        slope = jnp.abs(solve(signs))
        # The steepest coordinate; ties share it. (argmax does not lower in `float64_inside`.)
        steepest = (slope >= jnp.max(slope)).astype(matrix.dtype)
        return steepest / jnp.maximum(jnp.sum(steepest), 1.0), best

    uniform = jnp.full((size,), 1.0 / size, matrix.dtype)
    _, estimate = jax.lax.fori_loop(0, 5, step, (uniform, jnp.zeros((), matrix.dtype)))
    # Higham's alternating vector catches the cases that fool the iteration.
    ladder = jnp.linspace(1.0, 2.0, size, dtype=matrix.dtype)
    alternating = jnp.where(jnp.arange(size) % 2 == 0, ladder, -ladder)
    second = 2.0 * jnp.sum(jnp.abs(solve(alternating))) / (3.0 * size)
    norm = jnp.max(jnp.sum(jnp.abs(matrix), axis=0))
    # A factor that does not exist has no condition; infinity says so without poisoning a maximum.
    return jnp.where(jnp.isfinite(factor[-1, -1]), norm * jnp.maximum(estimate, second), jnp.inf)


def solve_status(
    condition: Float[Array, ""], shift: Float[Array, ""], floored: Array
) -> Int[Array, ""]:
    """The status from what was measured; the most severe wins."""
    unit_roundoff = 2.0**-53
    status = jnp.int32(Status.SOLVED)
    for happened, code in (
        (condition * unit_roundoff > _SOLVE_RTOL, Status.ILL_CONDITIONED),
        (floored, Status.FLOORED),
        (shift > 0, Status.REPAIRED),
        (~jnp.isfinite(condition), Status.FAILED),
    ):
        status = jnp.where(happened, jnp.int32(code), status)
    return status
