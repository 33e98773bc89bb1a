"""CME attention in the space of a finite feature map: linear in the context length.

With noise λ_i for key i (λ, or its floor) and rows φ̃_i = φ(k_i)/√λ_i, ṽ_i = v_i/√λ_i,

attn_CME(q, K, V) = φ(q)ᵀ(Φ̃ᵀΦ̃ + I)⁻¹Φ̃ᵀṼ, the primal form of (4.3), zhang2022; the variance is
φ(q)ᵀ(Φ̃ᵀΦ̃ + I)⁻¹φ(q).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.cme.causal import prefix_mask
from finetti.core.blocked import solve_lower
from finetti.core.solves import posdef_factor, posdef_solve


class PrimalAnswer(NamedTuple):
    """Mean and variance for every query."""

    mean: Float[Array, "Q d_v"]
    variance: Float[Array, "Q"]


def primal_read(
    features: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    query_features: Float[Array, "Q D"],
    noise: Float[Array, "L"],
) -> PrimalAnswer:
    """All queries read the whole context; masked keys have zero rows in both arrays."""
    rows, targets = _in_units_of_noise(noise, features, values)
    solved, _, _ = posdef_solve(_moments(rows), query_features.T)
    variance = jnp.sum(query_features.T * solved, axis=0)
    return PrimalAnswer(solved.T @ (rows.T @ targets), jnp.maximum(variance, 0.0))


def primal_weights(
    features: Float[Array, "L D"], query_features: Float[Array, "Q D"], noise: Float[Array, "L"]
) -> Float[Array, "L Q"]:
    """w_i = φ̃_iᵀ(Φ̃ᵀΦ̃ + I)⁻¹φ(q) / √λ_i."""
    (rows,) = _in_units_of_noise(noise, features)
    solved, _, _ = posdef_solve(_moments(rows), query_features.T)
    return _in_units_of_noise(noise, rows @ solved)[0]


def primal_prefixes(
    features: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    query_features: Float[Array, "Q D"],
    noise: Float[Array, "L"],
    chunk: int,
) -> PrimalAnswer:
    """Query t reads the keys i ≤ t, chunk by chunk.

    Bayes' rule in two steps: what the chunks before have taught is a Gaussian over functions, with
    covariance φᵀA⁻¹φ' and mean φᵀA⁻¹b; inside a chunk the dual prefix form continues from it. The
    cost is L(D² + chunk·D + chunk²), the memory that of one chunk.
    """
    queries = query_features.shape[0]
    blocks = -(-queries // chunk)
    size = blocks * chunk

    def chunks(rows: Array) -> Array:
        """Cut what no query reads (keys beyond the last query), pad with zeros, split."""
        rows = rows[:queries]
        padded = jnp.pad(rows, ((0, size - rows.shape[0]), (0, 0)))
        return padded.reshape(blocks, chunk, rows.shape[1])

    dimension, width = features.shape[1], values.shape[1]
    start = (
        jnp.eye(dimension, dtype=features.dtype),
        jnp.zeros((dimension, width), features.dtype),
    )
    visible = prefix_mask(chunk, jnp.arange(chunk))
    identity = jnp.eye(chunk, dtype=features.dtype)

    def step(
        state: tuple[Array, Array], block: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], PrimalAnswer]:
        matrix, moment = state
        keys, targets, query = block
        factor = posdef_factor(matrix)
        white = solve_lower(factor, jnp.concatenate([keys.T, query.T, moment], axis=1))
        white_keys, white_query, white_moment = jnp.split(white, [chunk, 2 * chunk], axis=1)
        surprise = targets - white_keys.T @ white_moment
        inner = posdef_factor(white_keys.T @ white_keys + identity)
        right = jnp.concatenate([white_keys.T @ white_query, surprise], axis=1)
        half, half_surprise = jnp.split(solve_lower(inner, right), [chunk], axis=1)
        half = jnp.where(visible, half, 0.0)
        mean = white_query.T @ white_moment + half.T @ half_surprise
        variance = jnp.sum(white_query**2, axis=0) - jnp.sum(half**2, axis=0)
        state = (matrix + keys.T @ keys, moment + keys.T @ targets)
        return state, PrimalAnswer(mean, jnp.maximum(variance, 0.0))

    rows, targets = _in_units_of_noise(noise, features, values)
    _, answers = jax.lax.scan(step, start, (chunks(rows), chunks(targets), chunks(query_features)))
    return PrimalAnswer(
        answers.mean.reshape(size, width)[:queries], answers.variance.reshape(size)[:queries]
    )


def _in_units_of_noise(noise: Float[Array, "L"], *rows: Float[Array, "L n"]) -> tuple[Array, ...]:
    unit = jnp.sqrt(noise)[:, None]
    return tuple(array / unit for array in rows)


def _moments(rows: Float[Array, "L D"]) -> Float[Array, "D D"]:
    return rows.T @ rows + jnp.eye(rows.shape[1], dtype=rows.dtype)
