"""A Transformer that reads bits and answers at [CLS], as a textbook writes it down.

The learner of Section 5, edelman2022, in minGPT's details: what `factored_transformer` computes
faster for one layer, and what deeper networks are trained by.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from finetti.probe.cls_attention.dropout_masks import dropout_mask

Params = Any  # a dictionary of arrays, see `TransformerLearner.init`
ZERO, ONE, CLS = 0, 1, 2  # rows of the token embedding
EPSILON = 1e-5  # of LayerNorm


class Rates(NamedTuple):
    """Probabilities of dropout."""

    embedding: float
    attention: float
    output: float


class LayerMasks(NamedTuple):
    """The dropout multipliers of a layer with q queries, 0 or 1/(1 − rate); None: no dropout."""

    attention: Float[Array, "m q T+1 H"] | None = None
    attention_output: Float[Array, "m q d"] | None = None
    mlp_output: Float[Array, "m q d"] | None = None


class Masks(NamedTuple):
    """The dropout of one pass: on the embedded tokens, then layer by layer."""

    embedding: Float[Array, "m T+1 d"] | None
    layers: tuple[LayerMasks, ...]


def draw_masks(key: Any, rates: Rates, bits: Array, params: Params, n_heads: int) -> Masks:
    """The masks of one pass. Only [CLS] asks in the last layer, so its masks have q = 1.

    A sample's masks do not depend on how many samples there are.
    """
    samples, length = bits.shape
    d, dtype = params["tokens"].shape[1], params["tokens"].dtype

    def draw(stream: int, rate: float, *shape: int) -> Array | None:
        return dropout_mask(key, stream, (samples, *shape), rate, dtype) if rate else None

    layers = []
    for index in range(len(params["layers"])):
        queries = 1 if index == len(params["layers"]) - 1 else length + 1
        weights = draw(3 * index + 1, rates.attention, queries, length + 1, n_heads)
        outputs = [draw(3 * index + i, rates.output, queries, d) for i in (2, 3)]
        layers.append(LayerMasks(weights, *outputs))
    return Masks(draw(0, rates.embedding, length + 1, d), tuple(layers))


def textbook_logits(
    params: Params, bits: Array, masks: Masks | None, n_heads: int
) -> Float[Array, "m 2"]:
    """The network as it is written down.

    Args:
        params: from `TransformerLearner.init`.
        bits: (m, T).
        masks: from `draw_masks`; None: no dropout.
        n_heads: H.
    """
    x = embed(params, bits)
    if masks is not None and masks.embedding is not None:
        x = x * masks.embedding
    for index, layer in enumerate(params["layers"]):
        # In the last layer only [CLS] is read, which is the last token.
        queries = 1 if index == len(params["layers"]) - 1 else x.shape[1]
        dropped = LayerMasks() if masks is None else masks.layers[index]
        u = layer_norm(x, layer["attention_norm"])
        x = x[:, -queries:] + drop(
            attend(u[:, -queries:], u, layer, dropped.attention, n_heads),
            dropped.attention_output,
        )
        x = x + drop(mlp(x, layer), dropped.mlp_output)
    return layer_norm(x[:, -1], params["final_norm"]) @ params["head"]["weight"]


@functools.partial(jax.jit, static_argnames="n_heads")
def cls_attention(
    params: Params, bits: Integer[Array | np.ndarray, "m T"], n_heads: int
) -> Float[Array, "m H T+1"]:
    """The attention weights of [CLS] in the last layer, without dropout; those on itself last."""
    x = embed(params, bits)
    *before, last = params["layers"]
    for layer in before:
        u = layer_norm(x, layer["attention_norm"])
        x = x + attend(u, u, layer, None, n_heads)
        x = x + mlp(x, layer)
    u = layer_norm(x, last["attention_norm"])
    return attention_weights(u[:, -1:], u, last, n_heads)[:, 0].swapaxes(1, 2)


def embed(params: Params, bits: Integer[Array | np.ndarray, "m T"]) -> Float[Array, "m T+1 d"]:
    """E_b + P of the bits, and of [CLS] behind them."""
    cls = jnp.full((len(bits), 1), CLS)
    tokens = jnp.concatenate([jnp.where(bits > 0, ONE, ZERO), cls], axis=1)
    return params["tokens"][tokens] + params["positions"][None]


def attend(
    rows: Float[Array, "m q d"],
    u: Float[Array, "m n d"],
    layer: Params,
    mask: Float[Array, "m q n H"] | None,
    n_heads: int,
) -> Float[Array, "m q d"]:
    """Multi-head softmax attention; dropout on its weights."""
    weights = drop(attention_weights(rows, u, layer, n_heads), mask)
    read = jnp.einsum("nqth,nthk->nqhk", weights, _heads(u, layer["value"], n_heads))
    return affine(read.reshape(rows.shape), layer["output"])


def attention_weights(
    rows: Float[Array, "m q d"], u: Float[Array, "m n d"], layer: Params, n_heads: int
) -> Float[Array, "m q n H"]:
    """softmax(q·k/√k) over the tokens, head by head."""
    query, keys = _heads(rows, layer["query"], n_heads), _heads(u, layer["key"], n_heads)
    scores = jnp.einsum("nqhk,nthk->nqth", query, keys) * query.shape[-1] ** -0.5
    return jax.nn.softmax(scores, axis=2)


def _heads(x: Float[Array, "m n d"], linear: Params, n_heads: int) -> Float[Array, "m n H k"]:
    return affine(x, linear).reshape(*x.shape[:2], n_heads, -1)


def mlp(x: Float[Array, "... d"], layer: Params) -> Float[Array, "... d"]:
    """W₂·gelu(W₁·LN x), four times as wide inside."""
    hidden = affine(layer_norm(x, layer["mlp_norm"]), layer["expand"])
    return affine(jax.nn.gelu(hidden, approximate=False), layer["contract"])


def layer_norm(x: Float[Array, "... d"], norm: Params) -> Float[Array, "... d"]:
    """(x − mean)/√(variance + ε)·gain + bias over the last axis."""
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centered**2, axis=-1, keepdims=True)
    return _rowwise(centered * jax.lax.rsqrt(variance + EPSILON), norm["gain"], norm["bias"])


def affine(x: Float[Array, "... i"], linear: Params) -> Float[Array, "... o"]:
    """xW + b."""
    return _rowwise(x @ linear["weight"], None, linear["bias"])


def drop(x: Float[Array, "..."], mask: Float[Array, "..."] | None) -> Float[Array, "..."]:
    """Dropout with a given mask."""
    return x if mask is None else x * mask


def _rowwise(x: Array, gain: Array | None, bias: Array) -> Array:
    """x·gain + bias, the same for every row."""
    axes = tuple(range(x.ndim - 1))
    x = x if gain is None else x * jnp.expand_dims(gain, axes)
    return x + jnp.expand_dims(bias, axes)
