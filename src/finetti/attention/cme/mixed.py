"""CME attention in float32 where float32 will do: factored at twice the speed, checked, or redone.

Rounding the kernel to float32 moves the answer by about 2⁻²⁴‖α‖₂K(k, k), α = (K + λI)⁻¹V: as much
as rounding the keys does. Where that is small against the values, the answer stands; elsewhere (a
small ridge, values that follow no smooth function) it is found again in float64.
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
# Up to this length float64 factors again. Above, compiling a second factorization takes minutes,
# and conjugate gradients start from the float32 one.
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
        kernel: Kernel, ridge: Array, query: Array, keys: Array, values: Array, bits: Any
    ) -> Array:
        # As in `system.build`: below the floor, float64 cannot tell the matrix from a singular one.
        noise = jnp.maximum(ridge, diagonal_floor(*keys.shape) * kernel.diagonal(keys))
        if is_long:
            level, start = jnp.max(noise), _as_preconditioner(_bits(bits, jnp.float32))
            return iterative_mean(kernel, keys, values, query, mask, level, _RESIDUAL, start)[0]
        tree64, _ = blockwise.repaired_factor(kernel, keys, noise, mask)
        coefficients = blockwise.solve(tree64, kernel, keys, values, mask, noise)
        return gram_product(kernel, query, keys, coefficients)

    def again() -> Array:
        # As integers, the factor passes `float64_inside` as it is and takes no gradient.
        bits = _bits(tree, jnp.int32) if is_long else None
        return in_float64(kernel, ridge, query, keys, values, bits).astype(query.dtype)

    coefficients = blockwise.solve(tree, kernel, keys, values, mask, noise)
    mean = gram_product(kernel, query, keys, coefficients)
    accepted = _accepted(kernel, keys, values, coefficients) & (shift == 0)
    return jax.lax.cond(_for_all(accepted), lambda: mean, again)


def _bits(tree: Any, dtype: DTypeLike) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.bitcast_convert_type(leaf, dtype), tree)


def _as_preconditioner(tree: block_tree.Tree) -> Operator:
    """The float32 factor, applied to float64 residuals."""

    def apply(residual: Array) -> Array:
        # Residuals shrink below what float32 can hold.
        scale = jnp.max(jnp.abs(residual), axis=0)
        scale = jnp.where(scale > 0, scale, 1.0)[None, :]
        solved = block_tree.solve(tree, (residual / scale).astype(jnp.float32))
        return scale * solved.astype(residual.dtype)

    return apply


def _accepted(kernel: Kernel, keys: Array, values: Array, coefficients: Array) -> Bool[Array, ""]:
    """Whether the estimated rounding is within `TOLERANCE` for every coordinate of the values."""
    size = jnp.max(kernel.diagonal(keys))
    rounding = _ROUNDOFF * size * jnp.sqrt(jnp.sum(coefficients**2, axis=0))
    largest = jnp.max(jnp.abs(values), axis=0)
    # A failed solve left zeros behind: then nothing explains values that are not zero.
    solved = jnp.any(coefficients != 0, axis=0) | (largest == 0)
    return jnp.all(solved & (rounding <= TOLERANCE * largest))


def _for_all(accepted: Bool[Array, ""]) -> Bool[Array, ""]:
    """One decision for a whole batch, so that batching keeps the branch a branch."""

    @jax.custom_batching.custom_vmap
    def decide(accepted: Array) -> Array:
        return accepted

    @decide.def_vmap
    def decide_together(size: int, batched: list[bool], accepted: Array) -> tuple[Array, bool]:
        return _for_all(jnp.all(accepted)), False

    return decide(jax.lax.stop_gradient(accepted))
