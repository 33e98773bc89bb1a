"""The layout of ``jax.nn.dot_product_attention``: from heads to contexts and back."""

from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import (
    Contexts,
    as_boolean,
    clear_unreadable,
    set_aside_spoiled,
)
from finetti.core.arguments import check_finite, check_positive
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import widest_float

CausalAlignment = Literal["upper_left", "lower_right"]


class Heads(NamedTuple):
    """K key heads, each read by G query heads (grouped-query attention; G = 1 as a rule)."""

    query: Float[Array, "B K G T H"]
    keys: Float[Array, "B K S H"]
    values: Float[Array, "B K S D"]
    mask: Bool[Array, "B K S"] | Bool[Array, "B K G T S"] | None
    scale: Any
    query_lengths: Array | None
    batched: bool
    dtype: Any
    is_causal: bool = False  # whether query t is still to be kept from the keys after t

    @property
    def full_mask(self) -> Bool[Array, "B K G #T S"] | None:
        """The mask with the axes of the query heads."""
        if self.mask is None or self.mask.ndim == 5:
            return self.mask
        batch, groups, members = self.query.shape[:3]
        wide = self.mask[:, :, None, None, :]
        return jnp.broadcast_to(wide, (batch, groups, members, 1, wide.shape[-1]))

    def bias(self, owner: str, bias: ArrayLike | None) -> Float[Array, "B K G T S"] | None:
        """An additive bias on the log scores, in the layout of the mask."""
        if bias is None:
            return None
        full = _broadcast(owner, "bias", as_array(bias), self)
        # −∞ is a mask by another name.
        check_finite(jnp.where(full == -jnp.inf, 0, full), "bias", owner)
        return full.astype(self.query.dtype)

    @property
    def contexts(self) -> Contexts:
        """Every key head is a context, read by the positions of its query heads."""
        batch, groups, members, length, dimension = self.query.shape
        size, span = batch * groups, self.keys.shape[2]
        mask = self.mask
        if mask is not None:
            mask = mask.reshape(size, *((span,) if mask.ndim == 3 else (members * length, span)))
        return Contexts(
            self.query.reshape(size, members * length, dimension),
            self.keys.reshape(size, span, dimension),
            self.values.reshape(size, span, self.values.shape[-1]),
            mask,
            self.query.shape[:-1],
        )

    def set_aside_spoiled(self) -> tuple["Heads", Bool[Array, "B K G T"]]:
        """As `contexts.set_aside_spoiled`, in this layout."""
        arrays, known = set_aside_spoiled(self.contexts.arrays)
        cleaned = self._replace(
            query=arrays.query.reshape(self.query.shape),
            keys=arrays.keys.reshape(self.keys.shape),
            values=arrays.values.reshape(self.values.shape),
        )
        return cleaned, known.reshape(self.query.shape[:-1])

    def restore(self, out: Float[Array, "B K G T D"]) -> Float[Array, "..."]:
        """(B, K, G, T, D) to (B, T, N, D), zero on padded queries, unbatched as it came."""
        batch, groups, members, length, dimension = out.shape
        out = out.reshape(batch, groups * members, length, dimension).swapaxes(1, 2)
        if self.query_lengths is not None:
            padding = jnp.arange(length)[None, :] < self.query_lengths[:, None]
            out = jnp.where(padding[:, :, None, None], out, 0)
        out = out.astype(self.dtype)
        return out if self.batched else out[0]


def arrange_heads(
    owner: str,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike | None,
    scale: float | None,
    is_causal: bool,
    causal_alignment: CausalAlignment,
    query_seq_lengths: ArrayLike | None,
    key_value_seq_lengths: ArrayLike | None,
    local_window_size: int | tuple[int, int] | None,
    *,
    reads_prefixes: bool = False,
) -> Heads:
    """Check the arguments of ``owner``; all masks are joined into one.

    A caller that ``reads_prefixes`` has a faster way than a mask where query t reads the keys 0…t,
    and is told so by ``is_causal`` of the result.
    """
    query, key, value = as_array(query), as_array(key), as_array(value)
    batched = query.ndim == 4
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array.ndim != query.ndim or array.ndim not in (3, 4):
            requirement = "of shape (B, T, N, H) or (T, N, H), all three alike"
            raise bad_argument(name, owner, requirement, f"shape {array.shape}")
    dtype = widest_float(query, key, value)
    # Scores and kernels need at least float32, as in JAX's own attention.
    working = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype
    query, key, value = (
        (array if batched else array[None]).astype(working) for array in (query, key, value)
    )
    _check_shapes(owner, query, key, value)
    if scale is None:
        scale = query.shape[-1] ** -0.5
    check_positive(scale, "scale", owner)

    batch, length, n_heads, dimension = query.shape
    groups = key.shape[2]
    heads = Heads(
        query.reshape(batch, length, groups, n_heads // groups, dimension).transpose(0, 2, 3, 1, 4),
        key.swapaxes(1, 2),
        value.swapaxes(1, 2),
        None,
        jnp.asarray(scale, working),
        _lengths(owner, "query_seq_lengths", query_seq_lengths, batch),
        batched,
        dtype,
    )
    key_lengths = _lengths(owner, "key_value_seq_lengths", key_value_seq_lengths, batch)
    if causal_alignment not in get_args(CausalAlignment):
        wanted = " or ".join(map(repr, get_args(CausalAlignment)))
        raise bad_argument("causal_alignment", owner, wanted, repr(causal_alignment))
    window = _window(owner, local_window_size)
    from_end = causal_alignment == "lower_right"
    has_lengths = heads.query_lengths is not None or key_lengths is not None
    near = None
    if window is not None:
        behind, ahead = window
        near = _near_mask(heads, from_end, key_lengths, behind, 0 if is_causal else ahead)
    elif is_causal:
        if reads_prefixes and (not from_end or (length == key.shape[1] and not has_lengths)):
            heads = heads._replace(is_causal=True)
        elif not from_end or length > 1 or heads.query_lengths is not None:
            near = _near_mask(heads, from_end, key_lengths, None, 0)
        # else the only query is the last position, and reads all keys.
    heads = _with_mask(owner, heads, mask, near, key_lengths)
    if heads.mask is not None:
        readable = heads.mask if heads.mask.ndim == 3 else heads.mask.any(axis=(2, 3))
        cleared_keys, cleared_values = clear_unreadable(heads.keys, heads.values, readable)
        heads = heads._replace(keys=cleared_keys, values=cleared_values)
    check_finite(heads.query, "query", owner)
    check_finite(heads.keys, "key", owner)
    check_finite(heads.values, "value", owner)
    return heads


def _check_shapes(owner: str, query: Array, key: Array, value: Array) -> None:
    batch, _, n_heads, dimension = query.shape
    if key.shape[1] == 0:
        raise bad_argument("key", owner, "at least one key", f"shape {key.shape}")
    if (key.shape[0], key.shape[3]) != (batch, dimension):
        requirement = f"of shape (B = {batch}, S, K, H = {dimension}) as the query has them"
        raise bad_argument("key", owner, requirement, f"shape {key.shape}")
    if n_heads % key.shape[2]:
        requirement = f"with a number of heads that divides the query's {n_heads}"
        raise bad_argument("key", owner, requirement, f"{key.shape[2]} heads")
    if value.shape[:3] != key.shape[:3]:
        requirement = f"of shape {(*key.shape[:3], 'D')}, one per key"
        raise bad_argument("value", owner, requirement, f"shape {value.shape}")


def _lengths(owner: str, name: str, lengths: ArrayLike | None, batch: int) -> Array | None:
    if lengths is None:
        return None
    lengths = as_array(lengths)
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        got = f"{lengths.dtype} of shape {lengths.shape}"
        raise bad_argument(name, owner, f"integers of shape ({batch},)", got)
    return lengths


def _broadcast(owner: str, name: str, array: Array, heads: Heads) -> Array:
    """A (B, N, T, S) argument in the layout (B, K, G, T, S); axes of size 1 stay.

    Axes that are missing in front are added, as in JAX: (T, S) is one for all batches and heads.
    """
    batch, groups, members, length, _ = heads.query.shape
    full = (batch, groups * members, length, heads.keys.shape[2])
    given = array[(None,) * (4 - array.ndim)]
    if given.ndim != 4 or any(
        size not in (1, wanted) for size, wanted in zip(given.shape, full, strict=True)
    ):
        requirement = f"broadcastable to (B, N, T, S) = {full}"
        raise bad_argument(name, owner, requirement, f"shape {array.shape}")
    if given.shape[1] == 1:
        return given[:, :, None]
    return given.reshape(given.shape[0], groups, members, *given.shape[2:])


def _window(owner: str, size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """How many keys before and behind its own position a query reads."""
    if size is None:
        return None
    parts = size if isinstance(size, tuple) else (size, size)
    if len(parts) != 2 or not all(isinstance(part, Integral) and part >= 0 for part in parts):
        requirement = "a whole number ≥ 0 or a pair of them (before, after)"
        raise bad_argument("local_window_size", owner, requirement, size)
    return int(parts[0]), int(parts[1])


def _near_mask(
    heads: Heads, from_end: bool, key_lengths: Array | None, behind: int | None, ahead: int
) -> Bool[Array, "#B T S"]:
    """Query t reads the keys t − behind … t + ahead, or from the first one on.

    ``from_end`` counts from the ends: position t is then t + S − T.
    """
    length, span = heads.query.shape[3], heads.keys.shape[2]
    more = jnp.zeros(1, int)
    if from_end:
        n_keys, n_queries = (
            jnp.atleast_1d(jnp.asarray(size if lengths is None else lengths, int))
            for size, lengths in ((span, key_lengths), (length, heads.query_lengths))
        )
        more = n_keys - n_queries
    position = (jnp.arange(length)[None, :] + more[:, None])[:, :, None]
    keys = jnp.arange(span)[None, None, :]
    near = keys <= position + ahead
    return near if behind is None else near & (keys >= position - behind)


def _with_mask(
    owner: str,
    heads: Heads,
    mask: ArrayLike | None,
    near: Bool[Array, "#B T S"] | None,
    key_lengths: Array | None,
) -> Heads:
    """One mask from all of them: a key mask where no query differs from another, else per query."""
    batch, groups, members, length, _ = heads.query.shape
    span = heads.keys.shape[2]
    joined = None
    if mask is not None:
        joined = _broadcast(owner, "mask", as_boolean(owner, mask), heads)
    if key_lengths is not None:
        padding = (jnp.arange(span)[None, :] < key_lengths[:, None])[:, None, None, None, :]
        joined = padding if joined is None else joined & padding
    if near is not None:
        wide = near[:, None, None]
        joined = wide if joined is None else joined & wide
    if joined is None:
        return heads
    joined = jnp.broadcast_to(joined, (*joined.shape[:-1], span))
    if joined.shape[3] == 1 and joined.shape[2] == members > 1:
        # A key mask of its own for every query head: the heads no longer share a context.
        flat = groups * members
        return heads._replace(
            query=heads.query.reshape(batch, flat, 1, length, -1),
            keys=jnp.repeat(heads.keys, members, axis=1),
            values=jnp.repeat(heads.values, members, axis=1),
            mask=jnp.broadcast_to(joined.reshape(joined.shape[0], flat, span), (batch, flat, span)),
        )
    if joined.shape[3] == 1:
        return heads._replace(
            mask=jnp.broadcast_to(joined[:, :, 0, 0], (batch, groups, span)),
        )
    return heads._replace(mask=jnp.broadcast_to(joined, (batch, groups, members, length, span)))
