"""Our attention functions as the ``attention_fn`` of Flax (linen and nnx)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from finetti.attention.functional import cme_attention
from finetti.core.arrays import is_concrete
from finetti.core.errors import InputError, bad_argument


def flax_attention_fn(
    function: Callable[..., Array] = cme_attention, *, key_mask: bool = False, **options: Any
) -> Callable[..., Array]:
    """``function`` with the named arguments that Flax passes to its ``attention_fn``.

    Give it to ``flax.linen.MultiHeadDotProductAttention(attention_fn=...)`` or
    ``flax.nnx.MultiHeadAttention(attention_fn=...)``. Padding and causal masks arrive as Flax makes
    them. Attention dropout does not exist here and is refused. With ``sow_weights=True`` in the
    layer's call, the weights are sown as the intermediate ``attention_weights``, as Flax does, and
    CME attention's variance as ``attention_variance``.

    Args:
        function: `cme_attention`, `softmax_attention`, `kernel_attention`,
            `local_linear_attention`, `linear_attention` or `delta_rule_attention`.
        key_mask: read Flax's (batch, heads, queries, keys) mask as a mask of keys: a key counts if
            any query may read it. CME attention then factors once, and the delta rule runs once,
            instead of once per query; say ``is_causal=True`` beside it if the mask is causal. Where
            queries that read anything differ in what they read, it is refused. Inside ``jit`` a
            mask that is an argument cannot be looked at: there, such a call answers NaN.
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
        for name, array in (("key", key), ("value", value)):
            if array.shape[:-3] != lead:
                requirement = f"with the batch axes {lead} of the query before its last three axes"
                raise bad_argument(name, "attention_fn", requirement, f"shape {array.shape}")
        query, key, value = (array.reshape(-1, *array.shape[-3:]) for array in (query, key, value))

        def flat(scores: Array) -> Array:
            """What is broadcastable to (..., heads, queries, keys), with one batch axis."""
            full = jnp.broadcast_shapes(scores.shape, (*lead, 1, 1, 1))
            return jnp.broadcast_to(scores, full).reshape(-1, *full[-3:])

        settings = options | ({"is_causal": True} if is_causal else {})
        misread = None
        if mask is not None:
            mask = flat(mask.astype(bool))
            if key_mask:
                shape = query.shape[1], key.shape[1]
                mask, misread = _mask_of_keys(mask, shape, _causal_mask(shape, settings))
        bias = None if bias is None else flat(bias)
        variance = None
        if module is None or function is not cme_attention:
            out = function(query, key, value, bias, mask, **settings)
        else:
            out, variance = function(
                query, key, value, bias, mask, return_variance=True, **settings
            )
        if misread is not None:
            out = jnp.where(misread.swapaxes(1, 2)[..., None], jnp.nan, out)
        if module is not None:
            # Every member is linear in the values: its weights are what it answers to e_1, …, e_S.
            span = key.shape[1]
            units = jnp.eye(span, dtype=value.dtype)[None, :, None]
            units = jnp.broadcast_to(units, (*key.shape[:3], span))
            weights = function(query, key, units, bias, mask, **settings).swapaxes(1, 2)
            _sow(module, "attention_weights", weights.reshape(*lead, *weights.shape[1:]))
            if variance is not None:
                _sow(module, "attention_variance", variance.reshape(*lead, *variance.shape[1:]))
        return out.reshape(*lead, *out.shape[1:])

    return attention_fn


def _causal_mask(shape: tuple[int, int], settings: dict[str, Any]) -> Bool[Array, "T S"] | None:
    """What causality leaves of (queries, keys) with these settings of the function."""
    if not settings.get("is_causal", False):
        return None
    from_the_end = settings.get("causal_alignment") == "lower_right"
    return jnp.tril(jnp.ones(shape, bool), shape[1] - shape[0] if from_the_end else 0)


def _mask_of_keys(
    mask: Bool[Array, "..."], shape: tuple[int, int], causal: Bool[Array, "T S"] | None
) -> tuple[Bool[Array, "..."], Bool[Array, "..."] | None]:
    """The keys that any query may read, and which queries would then read what they may not.

    A padded query, which reads nothing, does not count. Inside ``jit`` the mask cannot be seen.
    """
    keys = mask.any(axis=2, keepdims=True)
    if mask.shape[2] == 1:
        return keys, None
    read = jnp.broadcast_to(keys, (*mask.shape[:3], shape[1]))
    if causal is not None:
        read &= causal[None, None]
    misread = mask.any(axis=3) & (read != mask).any(axis=3)
    if not is_concrete(mask):
        return keys, misread
    with jax.ensure_compile_time_eval():
        is_misread = bool(misread.any())
    if is_misread:
        raise InputError(
            "The `mask` argument of an attention_fn with key_mask=True must be the same for all "
            "queries that read anything. Got one that differs between them: some would read keys "
            "that it hides, in a causal mask the future. "
            + (
                "With is_causal=True it may differ by causality only. "
                if causal is not None
                else "If it is causal, say is_causal=True beside key_mask=True. "
            )
            + "For any other mask, leave key_mask out."
        )
    return keys, None


def _sow(module: Any, name: str, array: Array) -> None:
    """Each of the two Flax interfaces has its own name for what a call leaves behind."""
    from flax import linen, nnx

    collection: Any = "intermediates" if isinstance(module, linen.Module) else nnx.Intermediate
    sow: Any = module.sow
    sow(collection, name, array)
