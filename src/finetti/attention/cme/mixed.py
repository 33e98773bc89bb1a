"""CME attention in float32 where float32 will do: factored at twice the speed, checked, or redone.

Rounding the kernel to float32 moves the answer by about 2⁻²⁴‖α‖₂K(k, k), α = (K + λI)⁻¹V: as much
as rounding the keys does. Where that is small against the values, the answer stands; elsewhere (a
small ridge, values that follow no smooth function) it is found again in float64. So it is where a
few rows of the system, evaluated in float64, say that the kernel itself is known less well than
that: distances between keys that are far from their center.
"""

from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float

from finetti.attention.cme import blockwise
from finetti.attention.cme.gram_product import gram_product
from finetti.attention.cme.iterative import iterative_mean
from finetti.core import block_tree
from finetti.core.block_cg import Operator
from finetti.core.precision import float64_inside
from finetti.core.solves import diagonal_floor
from finetti.kernels.base import Kernel

# Estimated rounding, relative to the largest value, up to which float32 answers; measured errors
# were up to ten times the estimate.
TOLERANCE = 1e-5
# What the rows that are checked in float64 may miss: ten times the estimate, as measured.
RESIDUAL = 1e-4
# Rows checked: half of them the farthest from the center, where most digits cancel.
CHECKED = 32
# Up to this length float64 factors again. Above, a second factorization would multiply the time to
# compile (at 8192 keys 9 s without it), and conjugate gradients start from the float32 one.
FACTORED_AGAIN = 4096
_ROUNDOFF = 2.0**-24
_RESIDUAL = 1e-12


def mixed_mean(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    query: Float[Array, "Q d_k"],
    mask: Bool[Array, "L"] | None,
    ridge: Float[Array, ""],
) -> Float[Array, "Q d_v"]:
    """Vᵀ(K + λI)⁻¹K(K, q) of float32 data. Masked values must be zero."""
    noise = jnp.broadcast_to(ridge, keys.shape[:1])
    is_long = keys.shape[0] > FACTORED_AGAIN
    if is_long:
        # Conjugate gradients start from the factor, so there must be one.
        tree, shift = blockwise.repaired_factor(kernel, keys, noise, mask)
    else:
        tree, shift = blockwise.factor(kernel, keys, noise, mask), 0.0

    @jax.checkpoint  # the branch not taken must leave nothing behind for the backward pass
    @float64_inside
    def in_float64(
        kernel: Kernel, ridge: Array, query: Array, keys: Array, values: Array, mask: Any, bits: Any
    ) -> Array:
        # As in `system.build`: below the floor, float64 cannot tell the matrix from a singular one.
        noise = jnp.maximum(ridge, diagonal_floor(*keys.shape) * kernel.diagonal(keys))
        if is_long:
            diagonal = kernel.diagonal(keys) + noise
            start = _as_preconditioner(_bits(bits, jnp.float32), diagonal)
            return iterative_mean(kernel, keys, values, query, mask, noise, _RESIDUAL, start)[0]
        tree64, _ = blockwise.repaired_factor(kernel, keys, noise, mask)
        coefficients = blockwise.solve(tree64, kernel, keys, values, mask, noise)
        return gram_product(kernel, query, keys, coefficients)

    def again() -> Array:
        # As integers, the factor passes `float64_inside` as it is and takes no gradient. (All that
        # is traced must be an argument there, the mask too.)
        bits = _bits(tree, jnp.int32) if is_long else None
        return in_float64(kernel, ridge, query, keys, values, mask, bits).astype(query.dtype)

    coefficients = blockwise.solve(tree, kernel, keys, values, mask, noise)
    mean = gram_product(kernel, query, keys, coefficients)
    accepted = _accepted(kernel, keys, values, coefficients) & (shift == 0)
    accepted &= _confirmed(kernel, keys, values, coefficients, mask, ridge)
    return jax.lax.cond(_for_all(accepted), lambda: mean, again)


def _bits(tree: Any, dtype: DTypeLike) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.bitcast_convert_type(leaf, dtype), tree)


def _as_preconditioner(tree: block_tree.Tree, diagonal: Float[Array, "L"]) -> Operator:
    """The float32 factor, applied to float64 residuals; without one, the diagonal."""
    usable = block_tree.exists(tree)

    def apply(residual: Array) -> Array:
        # Residuals shrink below what float32 can hold.
        scale = jnp.max(jnp.abs(residual), axis=0)
        scale = jnp.where(scale > 0, scale, 1.0)[None, :]
        solved = block_tree.solve(tree, (residual / scale).astype(jnp.float32))
        factored = scale * solved.astype(residual.dtype)
        return jnp.where(usable, factored, residual / diagonal[:, None])

    return apply


def _accepted(kernel: Kernel, keys: Array, values: Array, coefficients: Array) -> Bool[Array, ""]:
    """Whether the estimated rounding is within `TOLERANCE` for every coordinate of the values."""
    size = jnp.max(kernel.diagonal(keys))
    largest = jnp.max(jnp.abs(values), axis=0)
    # In units of the values: squares of small numbers vanish in float32.
    relative = coefficients / jnp.where(largest > 0, largest, 1.0)[None, :]
    rounding = _ROUNDOFF * size * jnp.sqrt(jnp.sum(relative**2, axis=0))
    # A failed solve left zeros behind: then nothing explains values that are not zero.
    solved = jnp.any(coefficients != 0, axis=0) | (largest == 0)
    return jnp.all(solved & (rounding <= TOLERANCE))


def _confirmed(
    kernel: Kernel,
    keys: Array,
    values: Array,
    coefficients: Array,
    mask: Array | None,
    ridge: Array,
) -> Bool[Array, ""]:
    """Whether some rows of (K + λI)α = V hold to `RESIDUAL` of the largest value in float64."""
    kernel, keys, values, coefficients, ridge = jax.lax.stop_gradient(
        (kernel, keys, values, coefficients, ridge)
    )
    length = keys.shape[0]
    offsets = keys - jnp.mean(keys, axis=0, keepdims=True)
    distances = jnp.max(jnp.abs(offsets), axis=1)
    if mask is not None:
        distances = jnp.where(mask, distances, -1.0)
    count = min(CHECKED // 2, length)
    spread = jnp.arange(count) * length // count
    rows = jnp.concatenate([jax.lax.top_k(distances, count)[1], spread.astype(jnp.int32)])

    @float64_inside
    def residual(
        kernel: Kernel, ridge: Array, keys: Array, values: Array, alpha: Array, rows: Array
    ) -> Array:
        return values[rows] - (kernel.gram(keys[rows], keys) @ alpha + ridge * alpha[rows])

    missed = jnp.abs(residual(kernel, ridge, keys, values, coefficients, rows).astype(keys.dtype))
    if mask is not None:
        missed = jnp.where(mask[rows, None], missed, 0.0)
    largest = jnp.max(jnp.abs(values), axis=0)
    return jnp.all(jnp.max(missed, axis=0) <= RESIDUAL * largest)


def _for_all(accepted: Bool[Array, ""]) -> Bool[Array, ""]:
    """One decision for a whole batch, so that batching keeps the branch a branch."""

    @jax.custom_batching.custom_vmap
    def decide(accepted: Array) -> Array:
        return accepted

    @decide.def_vmap
    def decide_together(size: int, batched: list[bool], accepted: Array) -> tuple[Array, bool]:
        return _for_all(jnp.all(accepted)), False

    return decide(jax.lax.stop_gradient(accepted))
