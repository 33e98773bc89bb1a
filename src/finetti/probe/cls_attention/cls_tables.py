"""Scores and values of the 2T + 1 tokens that T bits and [CLS] can be."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.weights import as_projections, as_weights, promote


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
    maps, constants = _read_maps(cls, scale, *rest)
    return _split(tokens @ maps + constants[None, None], cls @ maps + constants, len(rest[0]))


def normalized_tables(
    pair: Float[Array, "2 d"],
    places: Float[Array, "T d"],
    cls: Float[Array, " d"],
    gain: Float[Array, " d"],
    bias: Float[Array, " d"],
    epsilon: float,
    heads: tuple[Array, Array, Array, Array, Array, Array],
    scale: float = 1.0,
) -> BinaryTables:
    """`binary_tables` of the tokens u_{b,t} = LN(pair_b + places_t), from T + 2 rows instead of 2T.

    LN(x) = gain·(x − mean)·r + bias, r = 1/√(variance + ε): the mean of a sum is the sum of the
    means, so all that is linear, with its gradient, is done for each part by itself.

    Args:
        pair: the embeddings of a bit.
        places: what is added at each position.
        cls: u_cls, normalized already.
        gain, bias, epsilon: of LayerNorm.
        heads: W_Q, W_K, W_V, (H, d, k) or (H, d, v), and the bias of each, (H, k) or (H, v).
        scale: multiplies query·key.
    """
    maps, constants = _read_maps(cls, scale, *heads)
    pair, places = (part - jnp.mean(part, axis=1, keepdims=True) for part in (pair, places))
    variance = jnp.mean((pair[:, None] + places[None]) ** 2, axis=2)
    r = jax.lax.rsqrt(variance + epsilon)[..., None]  # (2, T, 1)
    gained = gain[:, None] * maps
    table = r * ((pair @ gained)[:, None] + (places @ gained)[None])
    table = table + (bias @ maps + constants)[None, None]
    return _split(table, cls @ maps + constants, len(heads[0]))


def _read_maps(
    cls: Float[Array, " d"],
    scale: float,
    query_weights: Float[Array, "H d k"],
    key_weights: Float[Array, "H d k"],
    value_weights: Float[Array, "H d v"],
    query_bias: Float[Array, "H k"],
    key_bias: Float[Array, "H k"],
    value_bias: Float[Array, "H v"],
) -> tuple[Float[Array, "d c"], Float[Array, " c"]]:
    """What takes a token to the scores of all heads, then to their values: a matrix, a constant."""
    query = scale * (jnp.einsum("d,hdk->hk", cls, query_weights) + query_bias)
    absorbed = jnp.einsum("hdk,hk->dh", key_weights, query)
    values = value_weights.swapaxes(0, 1).reshape(len(cls), -1)
    constants = jnp.concatenate([jnp.sum(query * key_bias, axis=1), value_bias.reshape(-1)])
    return jnp.concatenate([absorbed, values], axis=1), constants


def _split(table: Float[Array, "2 T c"], own: Float[Array, " c"], heads: int) -> BinaryTables:
    """The columns of scores, and those of values head by head, of the tokens and of [CLS]."""

    def values(columns: Array) -> Array:
        return columns[..., heads:].reshape(*columns.shape[:-1], heads, -1)

    return BinaryTables(table[..., :heads], values(table), own[:heads], values(own))


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
