"""CME attention in float32 where float32 will do: factored at twice the speed, checked, or redone.

Rounding the kernel to float32 moves the answer by about 2⁻²⁴‖α‖₂K(k, k), α = (K + λI)⁻¹V: as much
as rounding the keys does. Where that is small against the values, the answer stands; elsewhere (a
small ridge, values that follow no smooth function) the caller's float64 route answers instead.
"""

from collections.abc import Callable

import jax
import jax.custom_batching
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.cme.gram_product import gram_product
from finetti.core import block_tree
from finetti.kernels.base import Kernel

# Estimated rounding, relative to the largest value, up to which float32 answers; measured errors
# were up to ten times the estimate.
TOLERANCE = 1e-5
_ROUNDOFF = 2.0**-24


def single_mean(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    query: Float[Array, "Q d_k"],
    mask: Bool[Array, "L"] | None,
    ridge: Float[Array, ""],
    otherwise: Callable[[], Float[Array, "Q d_v"]],
) -> Float[Array, "Q d_v"]:
    """Vᵀ(K + λI)⁻¹K(K, q), by ``otherwise`` where float32 is too coarse. Masked values are zero."""
    coefficients = solve_values(kernel, keys, values, mask, ridge)
    mean = gram_product(kernel, query, keys, coefficients)
    accepted = _accepted(kernel, keys, values, coefficients)
    return jax.lax.cond(_for_all(accepted), lambda: mean, otherwise)


def solve_values(
    kernel: Kernel,
    keys: Float[Array, "L d_k"],
    values: Float[Array, "L d_v"],
    mask: Bool[Array, "L"] | None,
    ridge: Float[Array, ""],
) -> Float[Array, "L d_v"]:
    """(K + λI)⁻¹V, 0 where float32 has no factor; gradients by implicit differentiation."""
    tree = _factor(*jax.lax.stop_gradient((kernel, keys, ridge)), mask)

    def matvec(vectors: Array) -> Array:
        if mask is None:
            return gram_product(kernel, keys, keys, vectors) + ridge * vectors
        kept = mask.astype(keys.dtype)[:, None]
        return kept * gram_product(kernel, keys, keys, kept * vectors) + ridge * vectors

    def solve(_: Callable[[Array], Array], right: Array) -> Array:
        solved = block_tree.solve(tree, right)
        return jnp.where(jnp.isfinite(solved), solved, 0.0)

    return jax.lax.custom_linear_solve(matvec, values, solve, symmetric=True)


def _factor(
    kernel: Kernel, keys: Array, ridge: Array, mask: Bool[Array, "L"] | None
) -> block_tree.Tree:
    def entries(rows: slice, columns: slice) -> Array:
        on_diagonal = rows == columns
        gram = kernel.gram(keys[rows], None if on_diagonal else keys[columns])
        if mask is not None:
            # A masked key keeps only its ridge.
            gram = jnp.where(mask[rows, None] & mask[None, columns], gram, 0.0)
        return gram + ridge * jnp.eye(len(gram), dtype=gram.dtype) if on_diagonal else gram

    return block_tree.factor(entries, len(keys))


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
