"""The layout of ``jax.nn.dot_product_attention``: from heads to contexts and back."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.context_batch import Contexts, Given, TokenLayout, as_boolean, check_readable
from finetti.core.arguments import check_finite, check_positive
from finetti.core.arrays import as_array, has_infinity, has_nan
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import widest_float

CausalAlignment = Literal["upper_left", "lower_right"]


@dataclass(frozen=True)
class Heads:
    """K key heads, each read by G query heads (grouped-query attention; G = 1 as a rule).

    Every key head is a context, read by the positions of its query heads.
    """

    shape: tuple[int, int, int, int, int]  # B, K, G, T, S
    is_batched: bool
    # Query t reads the keys t − behind … t + ahead; None where there is no end, or no such mask.
    behind: int | None = None
    ahead: int | None = None
    from_end: bool = False  # positions count from the ends: position t is then t + S − T
    has_own_masks: bool = False  # a mask of keys for every query head: they share no context

    def split(self, given: Given) -> tuple[Array, Array, Array, Bool[Array, "..."] | None]:
        """(B, K, G, T, H), (B, K, S, H), (B, K, S, D) and (B, K, S) or (B, K, G, T, S)."""
        batch, groups, members, length, span = self.shape
        query, key, value = (self._batched(array) for array in given[:3])
        query = query.reshape(batch, length, groups, members, query.shape[-1])
        query = query.transpose(0, 2, 3, 1, 4)
        keys, values = key.swapaxes(1, 2), value.swapaxes(1, 2)
        mask = self._joined_mask(given)
        if mask is None:
            return query, keys, values, None
        if self.has_own_masks:
            heads = groups * members
            query = query.reshape(batch, heads, 1, length, query.shape[-1])
            keys, values = (jnp.repeat(array, members, axis=1) for array in (keys, values))
            mask = jnp.broadcast_to(mask, (batch, groups, members, 1, span))
            return query, keys, values, mask.reshape(batch, heads, span)
        if mask.shape[3] == 1:
            return query, keys, values, jnp.broadcast_to(mask[:, :, 0, 0], (batch, groups, span))
        return query, keys, values, jnp.broadcast_to(mask, self.shape)

    def bias(self, given: Given) -> Float[Array, "#C #Q S"]:
        """The bias of every context, or of all alike; of every position, or of all alike."""
        batch, groups, members, length, span = self.shape
        bias = self._five_axes(given.bias)
        contexts = batch, groups
        if bias.shape[:2] == (1, 1) and not self.has_own_masks:
            contexts = 1, 1
        positions = (1, 1) if bias.shape[2:4] == (1, 1) else (members, length)
        if self.has_own_masks:
            positions = members, bias.shape[3]
        bias = jnp.broadcast_to(bias, (*contexts, *positions, span))
        if self.has_own_masks:
            return bias.reshape(batch * groups * members, bias.shape[3], span)
        return bias.reshape(contexts[0] * contexts[1], positions[0] * positions[1], span)

    def gate(self, gate: Float[Array, "B S K *rest"]) -> Float[Array, "C S *rest"]:
        """A gate of every key and head."""
        gate = gate.swapaxes(1, 2)
        if self.has_own_masks:
            gate = jnp.repeat(gate, self.shape[2], axis=1)
        return gate.reshape(-1, *gate.shape[2:])

    def join(self, answers: Float[Array, "B K G T *rest"], given: Given) -> Float[Array, "..."]:
        """(B, T, N, …): zero on padded queries, unbatched as it came."""
        batch, groups, members, length, _ = self.shape
        rest = answers.shape[4:]
        out = answers.reshape(batch, groups * members, length, *rest).swapaxes(1, 2)
        if given.query_lengths is not None:
            is_query = jnp.arange(length)[None, :] < given.query_lengths[:, None]
            out = jnp.where(is_query.reshape(batch, length, *(1,) * (out.ndim - 2)), out, 0)
        return out if self.is_batched else out[0]

    def _batched(self, array: Any) -> Array:
        return array if self.is_batched else array[None]

    def _five_axes(self, scores: Any) -> Array:
        """(B, N, T, S), axes that are missing in front included, as (B, K, G, T, S)."""
        scores = scores[(None,) * (4 - scores.ndim)]
        if scores.shape[1] == 1:
            return scores[:, :, None]
        return scores.reshape(scores.shape[0], *self.shape[1:3], *scores.shape[2:])

    def _joined_mask(self, given: Given) -> Bool[Array, "#B #K #G #T S"] | None:
        """All that is masked, in one."""
        parts = []
        if given.mask is not None:
            parts.append(self._five_axes(given.mask))
        if given.key_lengths is not None:
            padding = jnp.arange(self.shape[4])[None, :] < given.key_lengths[:, None]
            parts.append(padding[:, None, None, None, :])
        if self.ahead is not None:
            parts.append(self._near(given, self.ahead)[:, None, None])
        if not parts:
            return None
        joined = parts[0]
        for part in parts[1:]:
            joined = joined & part
        return jnp.broadcast_to(joined, (*joined.shape[:-1], self.shape[4]))

    def _near(self, given: Given, ahead: int) -> Bool[Array, "#B T S"]:
        length, span = self.shape[3:]
        more = jnp.zeros(1, int)
        if self.from_end:
            n_keys, n_queries = (
                jnp.atleast_1d(jnp.asarray(size if lengths is None else lengths, int))
                for size, lengths in ((span, given.key_lengths), (length, given.query_lengths))
            )
            more = n_keys - n_queries
        position = (jnp.arange(length)[None, :] + more[:, None])[:, :, None]
        keys = jnp.arange(span)[None, None, :]
        near = keys <= position + ahead
        return near if self.behind is None else near & (keys >= position - self.behind)


def arrange_heads(
    owner: str,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None,
    mask: ArrayLike | None,
    scale: float | None,
    is_causal: bool,
    causal_alignment: CausalAlignment,
    query_seq_lengths: ArrayLike | None,
    key_value_seq_lengths: ArrayLike | None,
    local_window_size: int | tuple[int, int] | None,
) -> tuple[Contexts, bool]:
    """Check the arguments of ``owner``; and whether query t is still to be kept from the keys
    after t, for which modules have a faster way than a mask."""
    query, key, value = as_array(query), as_array(key), as_array(value)
    is_batched = query.ndim == 4
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array.ndim != query.ndim or array.ndim not in (3, 4):
            requirement = "of shape (B, T, N, H) or (T, N, H), all three alike"
            raise bad_argument(name, owner, requirement, f"shape {array.shape}")
    dtype = widest_float(query, key, value)
    shapes = [array.shape if is_batched else (1, *array.shape) for array in (query, key, value)]
    _check_shapes(owner, *shapes)
    (batch, length, n_heads, d_k), (_, span, groups, _), (*_, d_v) = shapes
    members = n_heads // groups
    scale = d_k**-0.5 if scale is None else scale
    check_positive(scale, "scale", owner)
    query_lengths = _lengths(owner, "query_seq_lengths", query_seq_lengths, batch)
    key_lengths = _lengths(owner, "key_value_seq_lengths", key_value_seq_lengths, batch)
    if causal_alignment not in get_args(CausalAlignment):
        wanted = " or ".join(map(repr, get_args(CausalAlignment)))
        raise bad_argument("causal_alignment", owner, wanted, repr(causal_alignment))
    window = _window(owner, local_window_size)
    from_end = causal_alignment == "lower_right"
    behind = ahead = None
    reads_prefixes = False
    if window is not None:
        behind, ahead = window[0], 0 if is_causal else window[1]
    elif is_causal:
        has_lengths = query_lengths is not None or key_lengths is not None
        reads_prefixes = not from_end or (length == span and not has_lengths)
        # The only query is the last position, and reads all keys.
        is_last = from_end and length == 1 and query_lengths is None
        ahead = None if reads_prefixes or is_last else 0

    full = batch, n_heads, length, span
    mask = None if mask is None else _broadcastable(owner, "mask", as_boolean(owner, mask), full)
    if bias is not None:
        bias = _broadcastable(owner, "bias", as_array(bias), full)
        if has_nan(bias) or has_infinity(bias):
            # −∞ is a mask by another name.
            check_finite(jnp.where(bias == -jnp.inf, 0, bias), "bias", owner)
    shape = (batch, groups, members, length, span)
    heads = Heads(shape, is_batched, behind, ahead, from_end)
    rows = 1 if mask is None or mask.ndim < 2 else mask.shape[-2]
    per_query = rows != 1 or (ahead is not None and length != 1)
    has_own_masks = (
        not per_query and members > 1 and mask is not None and mask.ndim > 2 and mask.shape[-3] > 1
    )
    if has_own_masks:
        heads = Heads(shape, is_batched, behind, ahead, from_end, has_own_masks)
        groups, members = n_heads, 1
    batch_axes = batch, groups
    layout = TokenLayout(
        batch_axes,
        (*batch_axes, members, length),
        span,
        d_k,
        d_v,
        dtype,
        per_query,
        heads=heads,
    )
    given = Given(query, key, value, mask, bias, scale, query_lengths, key_lengths)
    contexts = Contexts(given, layout)
    is_masked = mask is not None or key_lengths is not None or ahead is not None
    check_readable(owner, contexts, ("query", "key", "value"), is_masked)
    return contexts, reads_prefixes


def _check_shapes(owner: str, query: Any, key: Any, value: Any) -> None:
    batch, _, n_heads, dimension = query
    if key[1] == 0:
        raise bad_argument("key", owner, "at least one key", f"shape {key}")
    if (key[0], key[3]) != (batch, dimension):
        requirement = f"of shape (B = {batch}, S, K, H = {dimension}) as the query has them"
        raise bad_argument("key", owner, requirement, f"shape {key}")
    if n_heads % key[2]:
        requirement = f"with a number of heads that divides the query's {n_heads}"
        raise bad_argument("key", owner, requirement, f"{key[2]} heads")
    if value[:3] != key[:3]:
        requirement = f"of shape {(*key[:3], 'D')}, one per key"
        raise bad_argument("value", owner, requirement, f"shape {value}")


def _lengths(owner: str, name: str, lengths: ArrayLike | None, batch: int) -> Array | None:
    if lengths is None:
        return None
    lengths = as_array(lengths)
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        got = f"{lengths.dtype} of shape {lengths.shape}"
        raise bad_argument(name, owner, f"integers of shape ({batch},)", got)
    return lengths


def _broadcastable(owner: str, name: str, scores: Array, full: tuple[int, ...]) -> Array:
    """Scores that broadcast to (B, N, T, S); axes of size 1 stay."""
    sizes = (1,) * (4 - scores.ndim) + scores.shape
    if len(sizes) != 4 or any(
        size not in (1, wanted) for size, wanted in zip(sizes, full, strict=True)
    ):
        requirement = f"broadcastable to (B, N, T, S) = {full}"
        raise bad_argument(name, owner, requirement, f"shape {scores.shape}")
    return scores


def _window(owner: str, size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """How many keys before and behind its own position a query reads."""
    if size is None:
        return None
    parts = size if isinstance(size, tuple) else (size, size)
    if len(parts) != 2 or not all(isinstance(part, Integral) and part >= 0 for part in parts):
        requirement = "a whole number ≥ 0 or a pair of them (before, after)"
        raise bad_argument("local_window_size", owner, requirement, size)
    return int(parts[0]), int(parts[1])
