"""One layer of the Transformer at [CLS], the same numbers in less time.

Only [CLS] asks and only [CLS] is read; tokens are bits, and embedding and LayerNorm work position
by position. So without dropout on embeddings there are 2T + 1 distinct keys and values, and a batch
is one matrix product with their tables (`finetti.attention.binary_attention`). With it every sample
has tokens of its own; then the query is absorbed into the keys and tokens are averaged before W_V
(`finetti.attention.absorbed_attention`). Exact, not an approximation: equal to `textbook_logits`
under the masks of the same key.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from finetti.attention.binary.absorbed import absorbed_attention
from finetti.attention.binary.binary_tables import binary_tables
from finetti.attention.binary.binary_tokens import binary_attention
from finetti.probe.learners.textbook import (
    CLS,
    ONE,
    ZERO,
    LayerMasks,
    Masks,
    Params,
    Rates,
    affine,
    draw_masks,
    drop,
    layer_norm,
    mlp,
)


def factored_logits(
    params: Params, bits: Array, key: Any, rates: Rates, n_heads: int
) -> Float[Array, "m 2"]:
    """What `textbook_logits` answers for one layer under the masks that ``key`` draws.

    Args:
        params: from `TransformerLearner.init`, one layer.
        bits: (m, T).
        key: of the dropout; None: no dropout.
        rates: of the dropout.
        n_heads: H.
    """
    masks = Masks(None, (LayerMasks(),))
    if key is not None:
        masks = draw_masks(key, rates, bits, params, n_heads)
    (layer,), (dropped,) = params["layers"], masks.layers
    x, read = (_tables if masks.embedding is None else _absorbed)(params, bits, masks, n_heads)
    output = affine(read.reshape(len(bits), -1), layer["output"])
    x = x + drop(output, _row(dropped.attention_output))
    x = x + drop(mlp(x, layer), _row(dropped.mlp_output))
    return layer_norm(x, params["final_norm"]) @ params["head"]["weight"]


def _tables(
    params: Params, bits: Array, masks: Masks, n_heads: int
) -> tuple[Float[Array, "m d"], Float[Array, "m H k"]]:
    """[CLS] before the layer and what it reads, from tables."""
    (layer,), tokens, positions = params["layers"], params["tokens"], params["positions"]
    pair = tokens[jnp.array([ZERO, ONE])][:, None] + positions[None, :-1]  # (2, T, d)
    cls = tokens[CLS] + positions[-1]
    u, u_cls = (layer_norm(x, layer["attention_norm"]) for x in (pair, cls))
    tables = binary_tables(u, u_cls, **_projections(layer, n_heads, key_bias=True))
    weights = masks.layers[0].attention
    dropout, cls_dropout = (None, None)
    if weights is not None:
        dropout, cls_dropout = weights[:, :, 0, :-1], weights[:, :, 0, -1]
    read = binary_attention(bits, tables, dropout=dropout, cls_dropout=cls_dropout)
    return jnp.broadcast_to(cls[None], (len(bits), len(cls))), read


def _absorbed(
    params: Params, bits: Array, masks: Masks, n_heads: int
) -> tuple[Float[Array, "m d"], Float[Array, "m H k"]]:
    """[CLS] before the layer and what it reads, if every sample drops its own embeddings."""
    (layer,), tokens, positions = params["layers"], params["tokens"], params["positions"]
    assert masks.embedding is not None
    chosen = jnp.where((bits > 0)[..., None], tokens[ONE][None, None], tokens[ZERO][None, None])
    cls = jnp.broadcast_to(tokens[CLS][None, None], (len(bits), 1, len(tokens[CLS])))
    x = (jnp.concatenate([chosen, cls], axis=1) + positions[None]) * masks.embedding.swapaxes(1, 2)
    u = layer_norm(x, layer["attention_norm"])
    weights = masks.layers[0].attention
    dropout, cls_dropout = (None, None)
    if weights is not None:
        dropout, cls_dropout = weights[:, :, 0, :-1], weights[:, :, 0, -1]
    read = absorbed_attention(
        u[:, :-1],
        u[:, -1],
        **_projections(layer, n_heads, key_bias=False),
        dropout=dropout,
        cls_dropout=cls_dropout,
    )
    return x[:, -1], read


def _projections(layer: Params, n_heads: int, key_bias: bool) -> dict[str, Any]:
    """W_Q, W_K, W_V as (H, d, k) and their biases as (H, k). That of the keys moves no weight."""
    found: dict[str, Any] = {"scale": (layer["query"]["weight"].shape[1] // n_heads) ** -0.5}
    for name in ("query", "key", "value"):
        weight = layer[name]["weight"]
        found[f"{name}_weights"] = weight.reshape(len(weight), n_heads, -1).swapaxes(0, 1)
        if name != "key" or key_bias:
            found[f"{name}_bias"] = layer[name]["bias"].reshape(n_heads, -1)
    return found


def _row(mask: Float[Array, "m 1 d"] | None) -> Float[Array, "m d"] | None:
    return None if mask is None else mask[:, 0]
