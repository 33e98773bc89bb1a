"""What several heads of one attention read at once."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.base import Attention
from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.networks.weights import promote
from finetti.core.errors import UnsupportedError, bad_argument


def arrange_reading(
    queries: ArrayLike,
    tokens: ArrayLike,
    mask: ArrayLike | None,
    query_weights: Float[Array, "H d k"],
    key_weights: Float[Array, "H d k"],
    value_weights: Float[Array, "H d v"],
) -> tuple[Array, Array, Array, Array | None]:
    """QW_q^h, XW_k^h, XW_v^h and the mask, for every head: the heads are one more batch axis."""
    owner, dimension = "MultiHead", query_weights.shape[1]
    queries, tokens = jnp.asarray(queries), jnp.asarray(tokens)
    if tokens.ndim < 2 or tokens.shape[-1] != key_weights.shape[1]:
        requirement = f"of shape (..., T, {key_weights.shape[1]})"
        raise bad_argument("tokens", owner, requirement, f"shape {tokens.shape}")
    batch = tokens.shape[:-2]
    if queries.shape[:-2] != batch or queries.ndim < 2 or queries.shape[-1] != dimension:
        requirement = f"of shape {(*batch, 'Q', dimension)}, with the batch axes of the tokens"
        raise bad_argument("queries", owner, requirement, f"shape {queries.shape}")
    mask = _for_heads(mask, queries, tokens, len(query_weights))
    queries, tokens, *weights = promote(queries, tokens, query_weights, key_weights, value_weights)
    query, keys, values = (
        jnp.einsum("...td,hdk->...htk", array, weight)
        for array, weight in zip((queries, tokens, tokens), weights, strict=True)
    )
    return query, keys, values, mask


def posterior_of(
    attention: Attention, *reading: Array | None, predictive: bool, is_causal: bool
) -> tuple[Array, Array]:
    """Mean and variance of what was read; refuses an attention without an error bar."""
    if not isinstance(attention, ConditionalMean):
        raise UnsupportedError(
            f"{type(attention).__name__} attention has no variance. Use ConditionalMean, whose "
            "answer is a posterior."
        )
    query, keys, values, mask = reading
    return attention.posterior(query, keys, values, mask, predictive, is_causal=is_causal)


def _for_heads(mask: ArrayLike | None, queries: Array, tokens: Array, n_heads: int) -> Array | None:
    """The caller's mask, (…, T) or (…, Q, T), repeated for every head."""
    if mask is None:
        return None
    mask = jnp.asarray(mask)
    batch, length = tokens.shape[:-2], tokens.shape[-2]
    for own in ((length,), (queries.shape[-2], length)):
        if mask.shape == batch + own:
            expanded = jnp.expand_dims(mask, len(batch))
            return jnp.broadcast_to(expanded, (*batch, n_heads, *own))
    raise bad_argument(
        "mask",
        "MultiHead",
        f"of shape {(*batch, length)} or {(*batch, queries.shape[-2], length)}",
        f"shape {mask.shape}",
    )
