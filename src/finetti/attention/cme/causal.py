"""Every query reads its own prefix of the context, at the price of one factorization.

With GGᵀ = A the leading t×t block of G is the factor of the first t keys, and forward substitution
is causal: W = G⁻¹K(K, Q) and U = G⁻¹V hold the answers of all prefixes at once,
out_t = Σ_{i≤t} W_it U_i with the variance K(q_t, q_t) − Σ_{i≤t} W_it².
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from finetti.attention.cme import dense_system as linear
from finetti.core.linalg.positive_definite import posdef_factor
from finetti.core.linalg.triangular import solve_lower
from finetti.kernels.kernel import Kernel


class Prefixes(NamedTuple):
    """G, the half-solved columns W (0 beyond each prefix) with their scale, and U = G⁻¹V."""

    factor: Float[Array, "L L"]
    half: Float[Array, "L Q"]
    half_values: Float[Array, "L d_v"]
    right: linear.Cross


def prefix_mask(length: int, positions: Int[Array, "Q"]) -> Bool[Array, "L Q"]:
    """Key i is visible at position t iff i ≤ t, as in ``jax.nn.dot_product_attention``."""
    return jnp.arange(length)[:, None] <= positions[None, :]


def solve_prefixes(
    system: linear.System,
    values: Float[Array, "L d_v"],
    query: Float[Array, "Q d_k"],
    positions: Int[Array, "Q"],
) -> Prefixes:
    """The factor of all prefixes and the half-solved columns, side by side in one solve."""
    visible = prefix_mask(values.shape[0], positions)
    right = linear.cross(system, query, visible)
    factor = posdef_factor(system.matrix)
    halves = solve_lower(factor, jnp.concatenate([right.columns, values], axis=1))
    half, half_values = jnp.split(halves, [query.shape[0]], axis=1)
    return Prefixes(factor, jnp.where(visible, half, 0.0), half_values, right)


def prefix_mean(
    system: linear.System, solved: Prefixes, values: Float[Array, "L d_v"]
) -> Float[Array, "Q d_v"]:
    """out_t = Σ_{i≤t} W_it U_i."""
    if solved.right.log_scale is not None:
        # U = G⁻¹D⁻¹V would underflow with the keys' scales; the weights bring both scales together.
        return prefix_weights(system, solved).T @ values
    return solved.half.T @ solved.half_values


def prefix_weights(system: linear.System, solved: Prefixes) -> Float[Array, "L Q"]:
    """w_t = G_t⁻ᵀW_t: back substitution stays inside the prefix, because W is 0 beyond it."""
    scaled = solve_lower(solved.factor, solved.half, transpose=True)
    return linear.unscale(system, solved.right, scaled)


def prefix_variance(
    kernel: Kernel, query: Float[Array, "Q d_k"], solved: Prefixes
) -> Float[Array, "Q"]:
    """K(q_t, q_t) − Σ_{i≤t} W_it²."""
    return linear.remaining_variance(kernel, query, solved.right, jnp.sum(solved.half**2, axis=0))
