"""Attention of [CLS] with the query absorbed into the keys, and what its relatives share."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.weights import as_projections, as_weights, promote
from finetti.core.conversion import as_array
from finetti.core.errors import bad_argument


def absorbed_attention(
    tokens: ArrayLike,
    cls: ArrayLike,
    query_weights: ArrayLike,
    key_weights: ArrayLike,
    value_weights: ArrayLike,
    *,
    scale: float = 1.0,
    query_bias: ArrayLike | None = None,
    value_bias: ArrayLike | None = None,
    dropout: ArrayLike | None = None,
    cls_dropout: ArrayLike | None = None,
) -> Float[Array, "m H v"]:
    """What [CLS] reads from T tokens and itself, per head, without making keys or values.

    The query goes into the keys, u_h = W_K^h q_h, and the tokens are averaged before W_V^h:
    (Σ_t p_t x_t)ᵀW_V^h with p = softmax(scale · Xu_h). Cost m·T·d·H instead of m·T·d². For any
    tokens that differ from sample to sample, given as they are; else see `binary_attention`. Where
    they differ by embedding dropout alone, `dropped_tokens.dropped_attention` is the same read
    without ever holding (m, T, d) tokens: that is what the probe trains with. A bias of the keys
    would change no weight, so there is none.

    Args:
        tokens: (m, T, d).
        cls: (m, d).
        query_weights, key_weights: (H, d, k).
        value_weights: (H, d, v).
        scale: multiplies query·key; 1 as in the papers, 1/√k in networks.
        query_bias, value_bias: (H, k) and (H, v), or None.
        dropout, cls_dropout: what multiplies the weights on the tokens, (m, H, T), and on [CLS],
            (m, H): 0 or 1/(1 − rate).
    """
    owner = "absorbed_attention"
    tokens = as_weights(tokens, "tokens", owner, "(m, T, d)", (None, None, None))
    samples, length, dimension = tokens.shape
    cls = as_weights(cls, "cls", owner, "(m, d)", (samples, dimension))
    weights, biases = (query_weights, key_weights, value_weights), (query_bias, None, value_bias)
    tokens, cls, *rest = promote(tokens, cls, *as_heads(owner, dimension, weights, biases))
    query_weights, key_weights, value_weights, query_bias, _, value_bias = rest
    heads = len(query_weights)
    dropout = as_multiplier(dropout, "dropout", owner, (samples, heads, length), tokens.dtype)
    cls_dropout = as_multiplier(cls_dropout, "cls_dropout", owner, (samples, heads), tokens.dtype)

    query = jnp.einsum("nd,hdk->nhk", cls, query_weights)
    query = scale * (query + query_bias[None])
    absorbed = jnp.einsum("nhk,hdk->nhd", query, key_weights)
    scores = jnp.einsum("nhd,ntd->nht", absorbed, tokens)
    cls_scores = jnp.einsum("nhd,nd->nh", absorbed, cls)
    top = jnp.maximum(jnp.max(scores, axis=2), cls_scores)
    top = jax.lax.stop_gradient(top)
    e, e_cls = jnp.exp(scores - top[..., None]), jnp.exp(cls_scores - top)
    den = jnp.sum(e, axis=2) + e_cls
    e = e if dropout is None else e * dropout
    e_cls = e_cls if cls_dropout is None else e_cls * cls_dropout
    num = jnp.einsum("nht,ntd->nhd", e, tokens) + e_cls[..., None] * cls[:, None, :]
    out = jnp.einsum("nhd,hdv->nhv", num / den[..., None], value_weights)
    # Dropped weights do not sum to 1, and the bias is read with them.
    total = (jnp.sum(e, axis=2) + e_cls) / den
    return out + total[..., None] * value_bias[None]


def cls_part(
    e_cls: Float[Array, "n H"],
    cls_values: Float[Array, "H v"],
    cls_dropout: Float[Array, "m H"] | None,
) -> Float[Array, "_ H v"]:
    """[CLS]'s own term of the numerator; n is m or 1."""
    if cls_dropout is not None:
        e_cls = e_cls * cls_dropout
    return e_cls[..., None] * cls_values[None]


def as_heads(
    owner: str, dimension: int, weights: Sequence[ArrayLike], biases: Sequence[ArrayLike | None]
) -> list[Array]:
    """W_Q, W_K, W_V, (H, d, width), and the bias of each, (H, width); None is zero."""
    axes = "(H, d, k)", "(H, d, v)"
    *heads, _ = as_projections(owner, axes, *weights, dimension=dimension)
    names = "query_bias", "key_bias", "value_bias"
    return heads + [
        jnp.zeros_like(weight[:, 0])
        if bias is None
        else as_weights(bias, name, owner, "(H, width)", weight.shape[::2])
        for bias, name, weight in zip(biases, names, heads, strict=True)
    ]


def as_multiplier(
    value: ArrayLike | None, argument: str, owner: str, shape: tuple[int, ...], dtype: Any
) -> Float[Array, "..."] | None:
    """A dropout mask in the precision of the data."""
    if value is None:
        return None
    array = as_array(value)
    if array.shape != shape:
        raise bad_argument(argument, owner, f"of shape {shape}", f"shape {array.shape}")
    return array.astype(dtype)
