"""CME attention in the space of a finite feature map: linear in the context length.

With noise λ_i for key i (λ, or its floor) and rows φ̃_i = φ(k_i)/√λ_i, ṽ_i = v_i/√λ_i,

attn_CME(q, K, V) = φ(q)ᵀ(Φ̃ᵀΦ̃ + I)⁻¹Φ̃ᵀṼ, the primal form of (4.3), zhang2022; the variance is
φ(q)ᵀ(Φ̃ᵀΦ̃ + I)⁻¹φ(q).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.cme.dense_system import prefix_mask
from finetti.attention.cme.gram_products import key_noise
from finetti.attention.cme.routes import Answer, Call, Output, Ridge, Route, masked_rows
from finetti.attention.context_batch import ContextArrays, split_rows
from finetti.core.linalg.positive_definite import posdef_factor, posdef_solve
from finetti.core.linalg.triangular import solve_lower
from finetti.kernels.kernel import Kernel

# Positions that one step of the causal form takes.
CHUNK_LENGTH = 128


class Primal(Route):
    """One factorization in the space of features; causal by chunks."""

    name = "primal"

    def refusal(self, call: Call) -> str:
        """It needs features."""
        if call.features is None:
            name = type(call.kernel).__name__
            return f"needs a kernel with a finite feature map, and {name} has none."
        if call.is_causal and call.output == "weights":
            return "keeps no causal weights: its chunks remember sums over the keys only."
        return ""

    def reason(self, call: Call) -> str:
        """Fewer features than keys."""
        if call.features is None or call.features >= call.length:
            return ""
        return (
            f"The kernel has {call.features} features, fewer than the {call.length} keys: linear "
            "in the length."
        )

    def read(
        self,
        kernel: Kernel,
        ridge: Ridge,
        context: ContextArrays,
        output: Output,
        prefix: int | None,
    ) -> Answer:
        """By moments of the features."""
        query, keys, values, mask = context
        features = masked_rows(kernel.features(keys), mask)
        values = masked_rows(values, mask)
        query_features = kernel.features(query)
        level = ridge.for_context(context)
        noise = key_noise(kernel, level, keys)
        if output == "weights":
            return Answer(weights=primal_weights(features, query_features, noise).T)
        if prefix is None:
            answer = primal_read(features, values, query_features, noise)
        else:
            # Query heads that share the context run side by side, each over its own positions.
            groups = query_features.reshape(-1, prefix, query_features.shape[1])
            chunk = max(1, min(CHUNK_LENGTH, prefix))
            answer = jax.vmap(lambda group: primal_prefixes(features, values, group, noise, chunk))(
                groups
            )
            answer = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), answer)
        return Answer(mean=answer.mean) if output == "mean" else answer._replace(ridge=level)


def primal_read(
    features: Float[Array, "L D"],
    values: Float[Array, "L d_v"],
    query_features: Float[Array, "Q D"],
    noise: Float[Array, "L"],
) -> Answer:
    """All queries read the whole context; masked keys have zero rows in both arrays."""
    rows, targets = _in_units_of_noise(noise, features, values)
    solved, _, _ = posdef_solve(_moments(rows), query_features.T)
    variance = jnp.sum(query_features.T * solved, axis=0)
    return Answer(solved.T @ (rows.T @ targets), jnp.maximum(variance, 0.0))


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
) -> Answer:
    """Query t reads the keys i ≤ t, chunk by chunk.

    Bayes' rule in two steps: what the chunks before have taught is a Gaussian over functions, with
    covariance φᵀA⁻¹φ' and mean φᵀA⁻¹b; inside a chunk the dual prefix form continues from it. The
    cost is L(D² + chunk·D + chunk²), the memory that of one chunk.
    """
    queries = query_features.shape[0]

    def chunks(rows: Array) -> Array:
        """Cut what no query reads (keys beyond the last query), fill up with zeros, split."""
        rows = jnp.pad(rows[:queries], ((0, max(0, queries - len(rows))), (0, 0)))
        return split_rows(rows, chunk)

    dimension, width = features.shape[1], values.shape[1]
    start = (
        jnp.eye(dimension, dtype=features.dtype),
        jnp.zeros((dimension, width), features.dtype),
    )
    visible = prefix_mask(chunk, jnp.arange(chunk))
    identity = jnp.eye(chunk, dtype=features.dtype)

    def step(
        state: tuple[Array, Array], block: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
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
        return state, (mean, jnp.maximum(variance, 0.0))

    rows, targets = _in_units_of_noise(noise, features, values)
    _, (mean, variance) = jax.lax.scan(
        step, start, (chunks(rows), chunks(targets), chunks(query_features))
    )
    return Answer(mean.reshape(-1, width)[:queries], variance.reshape(-1)[:queries])


def _in_units_of_noise(noise: Float[Array, "L"], *rows: Float[Array, "L _"]) -> tuple[Array, ...]:
    unit = jnp.sqrt(noise)[:, None]
    return tuple(array / unit for array in rows)


def _moments(rows: Float[Array, "L D"]) -> Float[Array, "D D"]:
    return rows.T @ rows + jnp.eye(rows.shape[1], dtype=rows.dtype)
