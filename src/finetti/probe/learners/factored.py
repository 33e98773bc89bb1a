"""One layer of the Transformer at [CLS], the same numbers in less time.

Only [CLS] asks and only [CLS] is read; tokens are bits, and embedding and LayerNorm work position
by position. So without dropout on embeddings there are 2T + 1 distinct keys and values, and a batch
is one matrix product with their tables (`finetti.attention.binary_attention`). With it every sample
has tokens of its own; then the query is absorbed into the keys, tokens are averaged before W_V, and
samples go through the cache block by block (`finetti.attention.binary.dropped_tokens`). Exact, not
an approximation: equal to `textbook_logits` under the masks of the same key.
"""

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.binary.binary_tables import binary_tables
from finetti.attention.binary.binary_tokens import binary_attention
from finetti.attention.binary.dropped_tokens import dropped_attention
from finetti.core.masks import dropout_mask, keep, mask_words
from finetti.probe.learners.textbook import (
    CLS,
    ONE,
    ZERO,
    Params,
    Rates,
    affine,
    drop,
    layer_norm,
    mlp,
)


def factored_logits(
    params: Params, bits: Array, key: Any, rates: Rates, n_heads: int
) -> Float[Array, "m 2"]:
    """What `textbook_logits` answers for one layer under the masks of `draw_masks`.

    Args:
        params: from `TransformerLearner.init`, one layer.
        bits: (m, T).
        key: of the dropout; None: no dropout.
        rates: of the dropout.
        n_heads: H.
    """
    (layer,), dtype = params["layers"], params["tokens"].dtype
    if key is None:
        rates = Rates(0.0, 0.0, 0.0)
    read_by = _from_dropped_tokens if rates.embedding else _from_tables
    x, read = read_by(params, bits, key, rates, n_heads)
    outputs = [None, None]
    if rates.output:
        outputs = [dropout_mask(key, stream, x.shape, rates.output, dtype) for stream in (2, 3)]
    x = x + drop(affine(read.reshape(x.shape), layer["output"]), outputs[0])
    x = x + drop(mlp(x, layer), outputs[1])
    return layer_norm(x, params["final_norm"]) @ params["head"]["weight"]


def _from_tables(
    params: Params, bits: Array, key: Any, rates: Rates, n_heads: int
) -> tuple[Float[Array, "m d"], Float[Array, "m H k"]]:
    """[CLS] before the layer and what it reads, if all samples share their tokens."""
    (layer,), tokens, positions = params["layers"], params["tokens"], params["positions"]
    pair = tokens[jnp.array([ZERO, ONE])][:, None] + positions[None, :-1]  # (2, T, d)
    cls = tokens[CLS] + positions[-1]
    u, u_cls = (layer_norm(x, layer["attention_norm"]) for x in (pair, cls))
    heads = {name: _heads(layer[name], n_heads) for name in ("query", "key", "value")}
    tables = binary_tables(
        u,
        u_cls,
        **{f"{name}_weights": weight for name, (weight, _) in heads.items()},
        **{f"{name}_bias": bias for name, (_, bias) in heads.items()},
        scale=_scale(layer, n_heads),
    )
    dropout, cls_dropout = None, None
    if rates.attention:
        samples, length = bits.shape
        draw = functools.partial(dropout_mask, key, 1, rate=rates.attention, dtype=tokens.dtype)
        steps = (length + 1) * n_heads, n_heads, 1  # numbered as (m, T + 1, H), used as (m, H, T)
        dropout = draw((samples, n_heads, length), strides=(steps[0], steps[2], steps[1]))
        cls_dropout = draw((samples, n_heads), strides=steps[::2], first=length * n_heads)
    read = binary_attention(bits, tables, dropout=dropout, cls_dropout=cls_dropout)
    return jnp.broadcast_to(cls[None], (len(bits), len(cls))), read


def _from_dropped_tokens(
    params: Params, bits: Array, key: Any, rates: Rates, n_heads: int
) -> tuple[Float[Array, "m d"], Float[Array, "m H k"]]:
    """[CLS] before the layer and what it reads, if every sample drops its own embeddings."""
    (layer,), tokens, positions = params["layers"], params["tokens"], params["positions"]
    samples, dtype = len(bits), tokens.dtype
    base = positions + jnp.concatenate(
        [jnp.broadcast_to(tokens[ZERO][None], positions[:-1].shape), tokens[CLS][None]]
    )
    ones = jnp.concatenate([(bits > 0).astype(dtype), jnp.zeros((samples, 1), dtype)], axis=1)
    words = jnp.stack([mask_words(key, stream) for stream in (0, 1)])

    # [CLS] asks: its own row of the mask, numbered as among all tokens.
    (length, width), size = base.shape, base.size
    kept = keep(
        words[0],
        (samples, width),
        rates.embedding,
        strides=(size, 1),
        first=(length - 1) * width,
    )
    x = jnp.where(kept, base[-1][None] * (1 / (1 - rates.embedding)), 0)  # (m, d)
    norm = layer["attention_norm"]
    (query, query_bias), (keys, _), (values, value_bias) = (
        _heads(layer[name], n_heads) for name in ("query", "key", "value")
    )
    asked = jnp.einsum("nd,hdk->nhk", layer_norm(x, norm), query) + query_bias[None]
    # The bias of the keys, and the norm's bias within them, move all scores alike.
    absorbed = jnp.einsum("nhk,hdk->nhd", _scale(layer, n_heads) * asked, keys)
    absorbed = absorbed * norm["gain"][None, None]
    read, total = dropped_attention(
        base, tokens[ONE] - tokens[ZERO], absorbed, ones, words, (rates.embedding, rates.attention)
    )
    # Dropped weights do not sum to 1, and both biases are read with them.
    read = read * norm["gain"][None, None] + total[..., None] * norm["bias"][None, None]
    read = jnp.einsum("nhd,hdk->nhk", read, values) + total[..., None] * value_bias[None]
    return x, read


def _heads(linear: Params, n_heads: int) -> tuple[Float[Array, "H d k"], Float[Array, "H k"]]:
    """A Linear map's weights and bias, head by head."""
    weight = linear["weight"].reshape(len(linear["weight"]), n_heads, -1)
    return weight.swapaxes(0, 1), linear["bias"].reshape(n_heads, -1)


def _scale(layer: Params, n_heads: int) -> float:
    return (len(layer["key"]["bias"]) // n_heads) ** -0.5
