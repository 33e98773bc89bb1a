"""CME attention in the space of a finite feature map: linear in the context length.

attn_CME(q, K, V) = φ(q)ᵀ(ΦᵀΦ + λI)⁻¹ΦᵀV, the primal form of (4.3), zhang2022; the variance is
λ·φ(q)ᵀ(ΦᵀΦ + λI)⁻¹φ(q).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.cme.causal import prefix_mask
from finetti.attention.cme.system import or_zero
from finetti.core.blocked import solve_lower
from finetti.core.solves import diagonal_floor, posdef_factor, posdef_solve


class PrimalAnswer(NamedTuple):
    """Mean and variance for every query."""

    mean: Float[Array, "Q d_v"]
    variance: Float[Array, "Q"]


def primal_ridge(features: Float[Array, "L D"], ridge: Float[Array, ""]) -> Float[Array, ""]:
    """The ridge, not below the diagonal floor of ΦᵀΦ."""
    length, dimension = features.shape
    largest = jnp.max(jnp.sum(features**2, axis=0))
    floored = jnp.maximum(ridge, diagonal_floor(dimension, length) * largest)
    return jnp.where(floored > 0, floored, 1.0)


def primal_read(
    features: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    query_features: Float[Array, "Q D"],
    ridge: Float[Array, ""],
) -> PrimalAnswer:
    """All queries read the whole context; masked keys have zero rows in both arrays."""
    ridge = primal_ridge(features, ridge)
    matrix = features.T @ features + ridge * jnp.eye(features.shape[1], dtype=features.dtype)
    solved, _, _ = posdef_solve(matrix, query_features.T)
    solved = or_zero(solved)
    variance = ridge * jnp.sum(query_features.T * solved, axis=0)
    return PrimalAnswer(solved.T @ (features.T @ values), jnp.maximum(variance, 0.0))


def primal_weights(
    features: Float[Array, "L D"], query_features: Float[Array, "Q D"], ridge: Float[Array, ""]
) -> Float[Array, "L Q"]:
    """w = Φ(ΦᵀΦ + λI)⁻¹φ(q)."""
    ridge = primal_ridge(features, ridge)
    matrix = features.T @ features + ridge * jnp.eye(features.shape[1], dtype=features.dtype)
    solved, _, _ = posdef_solve(matrix, query_features.T)
    return features @ or_zero(solved)


def primal_prefixes(
    features: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    query_features: Float[Array, "Q D"],
    ridge: Float[Array, ""],
    chunk: int,
) -> PrimalAnswer:
    """Query t reads the keys i ≤ t, chunk by chunk.

    Bayes' rule in two steps: what the chunks before have taught is a Gaussian over functions, with
    covariance λφᵀA⁻¹φ' and mean φᵀA⁻¹b; inside a chunk the dual prefix form continues from it. The
    cost is L(D² + chunk·D + chunk²), the memory that of one chunk.
    """
    queries = query_features.shape[0]
    ridge = primal_ridge(features, ridge)
    blocks = -(-queries // chunk)
    size = blocks * chunk

    def chunks(rows: Array) -> Array:
        """Cut what no query reads (keys beyond the last query), pad with zeros, split."""
        rows = rows[:queries]
        padded = jnp.pad(rows, ((0, size - rows.shape[0]), (0, 0)))
        return padded.reshape(blocks, chunk, rows.shape[1])

    dimension, width = features.shape[1], values.shape[1]
    start = (
        ridge * jnp.eye(dimension, dtype=features.dtype),
        jnp.zeros((dimension, width), features.dtype),
    )
    visible = prefix_mask(chunk, jnp.arange(chunk))
    identity = jnp.eye(chunk, dtype=features.dtype)

    def step(
        state: tuple[Array, Array], block: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], PrimalAnswer]:
        matrix, moment = state
        keys, chunk_values, query = block
        factor = posdef_factor(matrix)
        white_keys = solve_lower(factor, keys.T, False)  # (D, chunk)
        white_query = solve_lower(factor, query.T, False)
        white_moment = solve_lower(factor, moment, False)
        surprise = chunk_values - white_keys.T @ white_moment
        inner = posdef_factor(white_keys.T @ white_keys + identity)
        half = solve_lower(inner, white_keys.T @ white_query, False)
        half = jnp.where(visible, half, 0.0)
        mean = white_query.T @ white_moment
        mean = mean + half.T @ solve_lower(inner, surprise, False)
        variance = ridge * (jnp.sum(white_query**2, axis=0) - jnp.sum(half**2, axis=0))
        state = (matrix + keys.T @ keys, moment + keys.T @ chunk_values)
        return state, PrimalAnswer(or_zero(mean), jnp.maximum(or_zero(variance), 0.0))

    _, answers = jax.lax.scan(
        step, start, (chunks(features), chunks(values), chunks(query_features))
    )
    return PrimalAnswer(
        answers.mean.reshape(size, width)[:queries], answers.variance.reshape(size)[:queries]
    )
