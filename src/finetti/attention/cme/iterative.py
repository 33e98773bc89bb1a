"""CME attention for long contexts: preconditioned conjugate gradients that never hold the Gram.

The kernel matrix is evaluated block by block inside every product, so memory is linear in L. The
work is L²·(d_k + d_v) per iteration, in the precision of the data (float32 as a rule); gradients
solve one more system of the same kind (implicit differentiation).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from finetti.kernels.base import Kernel

RANK = 64
BLOCK = 1024
MAX_ITERATIONS = 500


class Iterations(NamedTuple):
    """How conjugate gradients went: iterations and the largest relative residual at the end."""

    iterations: Int[Array, ""]
    residual: Float[Array, ""]


def default_tolerance(dtype: jnp.dtype) -> float:
    """Relative residual asked of conjugate gradients: 1e-6 in float32, 1e-12 in float64."""
    return 1e-6 if dtype == jnp.float32 else 1e-12


def iterative_mean(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    query: Float[Array, "Q d_k"],
    mask: Bool[Array, "L"] | None,
    ridge: Float[Array, ""],
    tolerance: float | None = None,
) -> tuple[Float[Array, "Q d_v"], Iterations]:
    """Vᵀ(K + λI)⁻¹K(K, q) and how the iteration went. Masked values must be zero."""
    dtype = keys.dtype
    weights = jnp.ones(keys.shape[:1], dtype) if mask is None else mask.astype(dtype)
    ridge = ridge.astype(dtype)
    tolerance = default_tolerance(dtype) if tolerance is None else tolerance
    precondition = _preconditioner(
        *jax.lax.stop_gradient((kernel, keys, weights, ridge)), rank=min(RANK, keys.shape[0])
    )

    def apply(vectors: Float[Array, "L k"]) -> Float[Array, "L k"]:
        # A masked key keeps only its ridge: the kernel's rows and columns are switched off.
        product = gram_product(kernel, keys, keys, weights[:, None] * vectors)
        return weights[:, None] * product + ridge * vectors

    def solve(matvec: Callable[[Array], Array], right: Array) -> tuple[Array, Iterations]:
        return conjugate_gradients(matvec, right, precondition, tolerance)

    coefficients, iterations = jax.lax.custom_linear_solve(
        apply, values, solve, symmetric=True, has_aux=True
    )
    return gram_product(kernel, query, keys, coefficients), iterations


def gram_product(
    kernel: Kernel,
    rows: Float[Array, "n d_k"],
    keys: Float[Array, "L d_k"],
    vectors: Float[Array, "L k"],
) -> Float[Array, "n k"]:
    """K(rows, keys)·vectors, one block of rows at a time; recomputed in the backward pass."""
    count = rows.shape[0]
    if count <= BLOCK:
        return kernel.gram(rows, keys) @ vectors
    blocks = -(-count // BLOCK)
    padded = jnp.pad(rows, ((0, blocks * BLOCK - count), (0, 0)))

    @jax.checkpoint
    def one(block: Array) -> Array:
        return kernel.gram(block, keys) @ vectors

    products = jax.lax.map(one, padded.reshape(blocks, BLOCK, -1))
    return products.reshape(blocks * BLOCK, -1)[:count]


def conjugate_gradients(
    matvec: Callable[[Array], Array],
    right: Float[Array, "L k"],
    precondition: Callable[[Array], Array],
    tolerance: float,
) -> tuple[Float[Array, "L k"], Iterations]:
    """Solve for all columns side by side, until each has ‖r‖ ≤ tolerance·‖b‖.

    A column that is done, or that rounding has stopped, no longer moves.
    """
    goal = tolerance * _norms(right)

    class State(NamedTuple):
        solution: Array
        residual: Array
        direction: Array
        energy: Array
        iterations: Array

    def active(state: State) -> Array:
        return _norms(state.residual) > goal

    def step(state: State) -> State:
        image = matvec(state.direction)
        curvature = jnp.sum(state.direction * image, axis=0)
        moving = active(state) & (curvature > 0)
        length = jnp.where(moving, state.energy / jnp.where(moving, curvature, 1.0), 0.0)
        solution = state.solution + length[None, :] * state.direction
        residual = state.residual - length[None, :] * image
        whitened = precondition(residual)
        energy = jnp.sum(residual * whitened, axis=0)
        momentum = jnp.where(moving, energy / jnp.where(moving, state.energy, 1.0), 0.0)
        direction = whitened + momentum[None, :] * state.direction
        return State(solution, residual, direction, energy, state.iterations + 1)

    whitened = precondition(right)
    start = State(
        jnp.zeros_like(right),
        right,
        whitened,
        jnp.sum(right * whitened, axis=0),
        jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(
        lambda state: jnp.any(active(state)) & (state.iterations < MAX_ITERATIONS), step, start
    )
    relative = _norms(end.residual) / jnp.maximum(_norms(right), jnp.finfo(right.dtype).tiny)
    return end.solution, Iterations(end.iterations, jnp.max(relative))


def _norms(columns: Float[Array, "L k"]) -> Float[Array, "k"]:
    return jnp.sqrt(jnp.sum(columns**2, axis=0))


def _preconditioner(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    weights: Float[Array, "L"],
    ridge: Float[Array, ""],
    rank: int,
) -> Callable[[Array], Array]:
    """(RRᵀ + λI)⁻¹ with RRᵀ ≈ K by pivoted Cholesky, applied through Woodbury's identity."""
    root = pivoted_cholesky(kernel, keys, weights, rank)
    inner = root.T @ root + ridge * jnp.eye(rank, dtype=root.dtype)
    factor = jnp.linalg.cholesky(inner)
    # Where rounding spoils the small factor, no preconditioner is better than a wrong one.
    usable = jnp.all(jnp.isfinite(factor))
    factor = jnp.where(usable, factor, jnp.eye(rank, dtype=root.dtype))
    root = jnp.where(usable, root, 0.0)

    def apply(residual: Array) -> Array:
        correction = jax.scipy.linalg.cho_solve((factor, True), root.T @ residual)
        return (residual - root @ correction) / ridge

    return apply


def pivoted_cholesky(
    kernel: Kernel, keys: Float[Array, "L d_k"], weights: Float[Array, "L"], rank: int
) -> Float[Array, "L rank"]:
    """The first ``rank`` columns of a Cholesky factor that takes the largest pivot each time.

    Reference: Harbrecht, Peters and Schneider (2012); Gardner et al. (2018) as a preconditioner.
    """
    diagonal = weights * kernel.diagonal(keys)
    floor = jnp.finfo(keys.dtype).eps * jnp.maximum(jnp.max(diagonal), 1e-30)

    def step(index: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        root, left = state
        pivot = jnp.argmax(left)
        height = left[pivot]
        column = kernel.gram(keys, keys[pivot][None])[:, 0] * weights * weights[pivot]
        column = (column - root @ root[pivot]) / jnp.sqrt(jnp.maximum(height, floor))
        column = jnp.where(height > floor, column, 0.0)
        left = jnp.maximum(left - column**2, 0.0).at[pivot].set(0.0)
        return root.at[:, index].set(column), left

    start = (jnp.zeros((keys.shape[0], rank), keys.dtype), diagonal)
    return jax.lax.fori_loop(0, rank, step, start)[0]
