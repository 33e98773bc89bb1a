"""Scores and values of the 2T + 1 tokens that T bits and [CLS] can be."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.binary.absorbed import as_heads
from finetti.attention.networks.weights import as_weights, promote


class BinaryTables(NamedTuple):
    """All that [CLS] can see of T binary tokens: s_{b,t,h} and v_{b,t,h}, and of itself."""

    scores: Float[Array, "2 T H"]
    values: Float[Array, "2 T H v"]
    cls_scores: Float[Array, " H"]
    cls_values: Float[Array, "H v"]


def binary_tables(
    tokens: ArrayLike,
    cls: ArrayLike,
    query_weights: ArrayLike,
    key_weights: ArrayLike,
    value_weights: ArrayLike,
    *,
    scale: float = 1.0,
    query_bias: ArrayLike | None = None,
    key_bias: ArrayLike | None = None,
    value_bias: ArrayLike | None = None,
) -> BinaryTables:
    """Scores and values of the 2T + 1 distinct tokens, for the query [CLS].

    s_{b,t,h} = scale · q_h·(W_K^hᵀu_{b,t} + b_K^h), q_h = W_Q^hᵀu_cls + b_Q^h,
    v_{b,t,h} = W_V^hᵀu_{b,t} + b_V^h

    Args:
        tokens: u_{b,t}, shape (2, T, d): the token at position t if its bit is b.
        cls: u_cls, shape (d,).
        query_weights, key_weights: (H, d, k).
        value_weights: (H, d, v).
        scale: multiplies query·key; 1 as in the papers, 1/√k in networks.
        query_bias, key_bias, value_bias: (H, k), (H, k) and (H, v), or None.
    """
    owner = "binary_tables"
    tokens = as_weights(tokens, "tokens", owner, "(2, T, d)", (2, None, None))
    dimension = tokens.shape[2]
    cls = as_weights(cls, "cls", owner, "(d,)", (dimension,))
    weights, biases = (
        (query_weights, key_weights, value_weights),
        (query_bias, key_bias, value_bias),
    )
    tokens, cls, *rest = promote(tokens, cls, *as_heads(owner, dimension, weights, biases))
    query_weights, key_weights, value_weights, query_bias, key_bias, value_bias = rest
    query = jnp.einsum("d,hdk->hk", cls, query_weights)
    query = scale * (query + query_bias)
    absorbed = jnp.einsum("hdk,hk->hd", key_weights, query)
    constant = jnp.sum(query * key_bias, axis=1)
    values = jnp.einsum("btd,hdv->bthv", tokens, value_weights) + value_bias[None, None]
    cls_values = jnp.einsum("d,hdv->hv", cls, value_weights) + value_bias
    scores = jnp.einsum("btd,hd->bth", tokens, absorbed) + constant[None, None]
    return BinaryTables(scores, values, absorbed @ cls + constant, cls_values)
