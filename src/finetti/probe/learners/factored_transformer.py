"""One layer of the Transformer at [CLS], factored: the numbers of the textbook in less time.

Only [CLS] asks and only [CLS] is read; tokens are bits, and embedding and LayerNorm work position
by position. So without dropout on embeddings there are 2T + 1 distinct keys and values, and a batch
is one matrix product with their tables (`cls_attention.table_attention`). With it every sample has
tokens of its own; then the query is absorbed into the keys, tokens are averaged before W_V, and
samples go through the cache block by block (`cls_attention.dropped_tokens`). Exact, not an
approximation: equal to `textbook_logits` under the masks of the same key.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.probe.cls_attention.dropout_masks import dropout_mask, keep, mask_words
from finetti.probe.cls_attention.dropped_tokens import dropped_attention
from finetti.probe.cls_attention.table_attention import (
    BinaryTables,
    Drops,
    normalized_tables,
    read_tables,
)
from finetti.probe.learners.textbook_transformer import (
    CLS,
    EPSILON,
    ONE,
    ZERO,
    Params,
    Rates,
    affine,
    drop,
    layer_norm,
    mlp,
)

# Rows of a validation that are answered together.
CHUNK = 500


def factored_logits(
    params: Params, bits: Array, key: Any, rates: Rates, n_heads: int
) -> Float[Array, "m 2"]:
    """Compute `textbook_logits` of one layer under the masks of `draw_masks`.

    Args:
        params: from `TransformerLearner.init`, one layer.
        bits: (m, T).
        key: of the dropout; None: no dropout.
        rates: of the dropout.
        n_heads: H.
    """
    if key is None:
        rates = Rates(0.0, 0.0, 0.0)
    if not rates.embedding:
        cls, tables = _tables(params, n_heads)
        if key is None:  # a validation has many samples: chunk by chunk, within the cache
            read = functools.partial(_read_tables, cls, tables, mask=None)
            return _by_chunks(lambda part: _answer(params, *read(part)), bits)
        mask = functools.partial(dropout_mask, key, 1, rate=rates.attention, dtype=cls.dtype)
        x, read = _read_tables(cls, tables, bits, mask if rates.attention else None)
    else:
        x, read = _read_dropped(params, bits, key, rates, n_heads)
    drops = [None, None]
    if rates.output and key is not None:
        drops = [dropout_mask(key, stream, x.shape, rates.output, x.dtype) for stream in (2, 3)]
    return _answer(params, x, read, *drops)


def _answer(
    params: Params,
    x: Float[Array, "m d"],
    read: Float[Array, "m H k"],
    attention_drop: Float[Array, "m d"] | None = None,
    mlp_drop: Float[Array, "m d"] | None = None,
) -> Float[Array, "m 2"]:
    """The rest of the network, at [CLS] only."""
    (layer,) = params["layers"]
    # Heads last, as they were computed.
    flat, weight = read.swapaxes(1, 2).reshape(x.shape), layer["output"]["weight"]
    weight = weight.reshape(*read.shape[1:], -1).swapaxes(0, 1).reshape(weight.shape)
    x = x + drop(affine(flat, layer["output"] | {"weight": weight}), attention_drop)
    x = x + drop(mlp(x, layer), mlp_drop)
    return layer_norm(x, params["final_norm"]) @ params["head"]["weight"]


def _by_chunks(answer: Callable[[Array], Array], bits: Array) -> Float[Array, "m 2"]:
    """``answer`` for CHUNK rows at a time; rows are added to fill the last chunk."""
    samples, length = bits.shape
    if samples <= CHUNK:
        return answer(bits)
    chunks = -(-samples // CHUNK)
    filled = jnp.pad(bits, ((0, chunks * CHUNK - samples), (0, 0)))
    found = jax.lax.map(answer, filled.reshape(chunks, CHUNK, length))
    return found.reshape(chunks * CHUNK, -1)[:samples]


def _tables(params: Params, n_heads: int) -> tuple[Float[Array, " d"], BinaryTables]:
    """[CLS] before the layer, and all that it can read, if samples share their tokens."""
    (layer,), tokens, positions = params["layers"], params["tokens"], params["positions"]
    norm, cls = layer["attention_norm"], tokens[CLS] + positions[-1]
    weights, biases = zip(
        *(_heads(layer[name], n_heads) for name in ("query", "key", "value")), strict=True
    )
    return cls, normalized_tables(
        tokens[jnp.array([ZERO, ONE])],
        positions[:-1],
        layer_norm(cls, norm),
        norm["gain"],
        norm["bias"],
        EPSILON,
        (*weights, *biases),
        _scale(layer, n_heads),
    )


def _read_tables(
    cls: Float[Array, " d"],
    tables: BinaryTables,
    bits: Array,
    mask: Callable[..., Array] | None,
) -> tuple[Float[Array, "m d"], Float[Array, "m H k"]]:
    """[CLS] before the layer and what it reads; ``mask`` draws that of the attention's weights."""
    (samples, length), heads = bits.shape, len(tables.cls_scores)
    row = (length + 1) * heads  # numbered as (m, T + 1, H), used as (m, H, T)

    def drops() -> Drops:
        assert mask is not None
        dropout = mask((samples, heads, length), strides=(row, 1, heads))
        return dropout, mask((samples, heads), strides=(row, 1), first=length * heads)

    read = read_tables(bits, tables, None if mask is None else drops)
    return jnp.broadcast_to(cls[None], (len(bits), len(cls))), read


def _read_dropped(
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
