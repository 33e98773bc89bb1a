"""Where [CLS] looks: the attention of the last layer, for traces."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from finetti.probe.learners.textbook_transformer import (
    CLS,
    ONE,
    ZERO,
    Params,
    affine,
    attend,
    layer_norm,
    mlp,
)


@functools.partial(jax.jit, static_argnames="n_heads")
def cls_attention(
    params: Params, bits: Integer[Array | np.ndarray, "m T"], n_heads: int
) -> Float[Array, "m H T+1"]:
    """The attention weights of [CLS] in the last layer, without dropout; those on itself last.

    Args:
        params: from `TransformerLearner.init`.
        bits: 1 or 0.
        n_heads: H.
    """
    cls = jnp.full((len(bits), 1), CLS)
    tokens = jnp.concatenate([jnp.where(bits > 0, ONE, ZERO), cls], axis=1)
    x = params["tokens"][tokens] + params["positions"][None]  # (m, T+1, d)
    *before, last = params["layers"]
    for layer in before:
        u = layer_norm(x, layer["attention_norm"])
        x = x + attend(u, u, layer, None, n_heads)
        x = x + mlp(x, layer)
    u = layer_norm(x, last["attention_norm"])
    query = affine(u[:, -1], last["query"]).reshape(len(bits), n_heads, -1)
    keys = affine(u, last["key"]).reshape(*u.shape[:2], n_heads, -1)
    scores = jnp.einsum("nhk,nthk->nht", query, keys) * query.shape[-1] ** -0.5
    return jax.nn.softmax(scores, axis=-1)
