"""Our attention functions as the ``attention_fn`` of Flax (linen and nnx)."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from finetti.attention.functional import cme_attention
from finetti.core.errors import InputError


def flax_attention_fn(
    function: Callable[..., Array] = cme_attention, *, key_mask: bool = False, **options: Any
) -> Callable[..., Array]:
    """``function`` with the named arguments that Flax passes to its ``attention_fn``.

    Give it to ``flax.linen.MultiHeadDotProductAttention(attention_fn=...)`` or
    ``flax.nnx.MultiHeadAttention(attention_fn=...)``. Padding and causal masks arrive as Flax makes
    them. Attention dropout does not exist here and is refused. With ``sow_weights=True`` in the
    layer's call, CME attention's variance is sown as the intermediate ``attention_variance``.

    Args:
        function: `cme_attention`, `softmax_attention`, `kernel_attention`,
            `local_linear_attention`, `linear_attention` or `delta_rule_attention`.
        key_mask: read Flax's (batch, heads, queries, keys) mask as a mask of keys: a key counts if
            any query may read it. CME attention then factors once, and the delta rule runs once,
            instead of once per query; say ``is_causal=True`` beside it if the mask is causal.
        options: further arguments of ``function``, as ``ridge=0.1`` or ``kernel=RBF()``.

    >>> attention_fn = flax_attention_fn(cme_attention, ridge=0.1)
    """
    if "return_variance" in options:
        raise InputError(
            "The `return_variance` argument of flax_attention_fn must not be given: Flax takes one "
            "array from its attention_fn. Call the layer with sow_weights=True; the variance is "
            "then sown as the intermediate `attention_variance`."
        )

    # Flax linen passes only what it finds by name in the signature: no **kwargs here.
    def attention_fn(
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        is_causal: bool = False,
    ) -> Array:
        if dropout_rate > 0 and not deterministic:
            raise InputError(
                "The `dropout_rate` argument of an attention_fn from Finetti must be 0. Got "
                f"{dropout_rate} instead: its weights are an estimate, not a mixture to thin out. "
                "Put dropout on the layer's output."
            )
        query, key, value = (
            array if dtype is None else array.astype(dtype) for array in (query, key, value)
        )
        # Flax allows any batch axes: (..., length, heads, width).
        lead = query.shape[:-3]
        query, key, value = (array.reshape(-1, *array.shape[-3:]) for array in (query, key, value))

        def flat(scores: Array) -> Array:
            """What is broadcastable to (..., heads, queries, keys), with one batch axis."""
            full = jnp.broadcast_shapes(scores.shape, (*lead, 1, 1, 1))
            return jnp.broadcast_to(scores, full).reshape(-1, *full[-3:])

        if mask is not None:
            mask = flat(mask.astype(bool))
            if key_mask:
                mask = mask.any(axis=2, keepdims=True)
        bias = None if bias is None else flat(bias)
        settings = dict(options)
        if is_causal:
            settings["is_causal"] = True
        if module is None or function is not cme_attention:
            out = function(query, key, value, bias, mask, **settings)
        else:
            out, variance = function(
                query, key, value, bias, mask, return_variance=True, **settings
            )
            _sow(module, variance.reshape(*lead, *variance.shape[1:]))
        return out.reshape(*lead, *out.shape[1:])

    return attention_fn


def _sow(module: Any, variance: Array) -> None:
    """Each of the two Flax interfaces has its own name for what a call leaves behind."""
    from flax import linen, nnx

    collection: Any = "intermediates" if isinstance(module, linen.Module) else nnx.Intermediate
    sow: Any = module.sow
    sow(collection, "attention_variance", variance)
