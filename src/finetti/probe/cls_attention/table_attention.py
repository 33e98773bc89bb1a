"""Attention of [CLS] over binary tokens by tables: exact, one matrix product for a whole batch.

Where a token is one of two vectors at each position (position-wise maps such as LayerNorm included)
only 2T + 1 keys and values exist. Scores and values are then tables, and a batch of bit strings
X ∈ {0,1}^{m×T} needs no (m, H, T, T) attention at all. The networks are those of Section 5,
edelman2022; the tables are ours.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

MAX_LOSS = 8.0  # times the rounding error of split sums that others may have: three bits

Drops = tuple[Float[Array, "m H T"], Float[Array, "m H"]]


class BinaryTables(NamedTuple):
    """All that [CLS] can see of T binary tokens: s_{b,t,h} and v_{b,t,h}, and of itself."""

    scores: Float[Array, "2 T H"]
    values: Float[Array, "2 T H v"]
    cls_scores: Float[Array, " H"]
    cls_values: Float[Array, "H v"]


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
    """Scores and values of the tokens u_{b,t} = LN(pair_b + places_t), for the query [CLS].

    s_{b,t,h} = scale · q_h·(W_K^hᵀu_{b,t} + b_K^h), q_h = W_Q^hᵀu_cls + b_Q^h,
    v_{b,t,h} = W_V^hᵀu_{b,t} + b_V^h

    LN(x) = gain·(x − mean)·r + bias, r = 1/√(variance + ε): the mean of a sum is the sum of the
    means, so all that is linear, with its gradient, is done for T + 2 rows instead of 2T.

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
    """Return the affine map, matrix and constant, from a token to all scores and values."""
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


def read_tables(
    bits: Array, tables: BinaryTables, drops: Callable[[], Drops] | None = None
) -> Float[Array, "m H v"]:
    """Return what [CLS] reads from each bit string, per head; ``drops`` draws a dropout mask.

    out = num / den, den = Xe_1 + (1−X)e_0 + e_cls, num = X(e_1v_1) + (1−X)(e_0v_0) + e_cls v_cls
    with e = exp(s − shift_h). The multipliers of a dropout, 0 or 1/(1 − rate), stand in the
    numerator only.

    The sums are safe while the largest score of a head exceeds the least maximum that a sequence
    can have by less than 120 in float32, 1200 in float64. Beyond that each sequence has its own
    maximum, with (m, H, T) numbers in memory.

    >>> key = jax.random.key(0)
    >>> scores, values = jax.random.normal(key, (2, 100, 4)), jnp.ones((2, 100, 4, 3))
    >>> tables = BinaryTables(scores, values, jnp.zeros(4), jnp.ones((4, 3)))
    >>> read_tables(jax.random.bernoulli(key, shape=(32, 100)), tables).shape
    (32, 4, 3)
    """
    ones = bits.astype(tables.scores.dtype)

    def by_sums() -> Array:
        return read_by_sums(ones, tables, None if drops is None else drops())

    def by_selection() -> Array:
        return read_by_selection(ones, tables, None if drops is None else drops())

    # Computed again for the gradient: masks are drawn, never kept; and what a selection kept would
    # be (m, H, T) zeros in the other case, which to write takes longer than all the rest.
    sums = by_sums if drops is None else jax.checkpoint(by_sums)
    return jax.lax.cond(spread_is_safe(tables), sums, jax.checkpoint(by_selection))


def read_by_sums(
    ones: Float[Array, "m T"],
    tables: BinaryTables,
    drops: Drops | None = None,
) -> Float[Array, "m H v"]:
    """All sequences by one matrix product; without dropout the cheaper one that is accurate."""
    _, length, heads, _ = tables.values.shape
    e, e_cls = _exponentials(tables)
    # A column for each denominator, then one for each numerator; heads last, as there are more of
    # them than entries of a value, and the last axis is what a processor works on at once.
    weighted = e[:, :, None] * tables.values.swapaxes(2, 3)  # (2, T, v, H)
    flat = jnp.concatenate([e, weighted.reshape(2, length, -1)], axis=2)
    sums = (_safe_sums(e, e_cls) if drops is None else split_sums)(ones, flat)
    den = sums[:, :heads] + e_cls[None]
    num = sums[:, heads:].reshape(len(ones), weighted.shape[2], heads)
    own = e_cls[None]
    if drops is not None:
        dropout, cls_dropout = drops
        own = own * cls_dropout
        kept = dropout * ones[:, None, :]
        num = jnp.einsum("nht,tvh->nvh", kept, weighted[1])
        num = num + jnp.einsum("nht,tvh->nvh", dropout - kept, weighted[0])
    # The gradient of a quotient has the square of its denominator, which may be e^±120: beyond
    # float32. So that denominators are 1, they are divided by themselves, taken as constants.
    size = jax.lax.stop_gradient(den)
    num = num + own[:, None] * tables.cls_values.swapaxes(0, 1)[None]
    return (num / size[:, None] / (den / size)[:, None]).swapaxes(1, 2)


def split_sums(ones: Float[Array, "m T"], flat: Float[Array, "2 T c"]) -> Float[Array, "m c"]:
    """X·flat_1 + (1 − X)·flat_0: of nonnegative terms, if flat is nonnegative."""
    return ones @ flat[1] + (1 - ones) @ flat[0]


def difference_sums(ones: Float[Array, "m T"], flat: Float[Array, "2 T c"]) -> Float[Array, "m c"]:
    """The same as X·(flat_1 − flat_0) + Σ flat_0: half the work, with the rounding of Σ flat_0."""
    return ones @ (flat[1] - flat[0]) + jnp.sum(flat[0], axis=0)[None]


def _safe_sums(e: Float[Array, "2 T H"], e_cls: Float[Array, " H"]) -> Any:
    """The sums by differences if their terms are at most `MAX_LOSS` times any denominator.

    All denominators, whatever the bits, are at least Σ_t min(e_0, e_1) + e_cls.
    """
    e, e_cls = jax.lax.stop_gradient((e, e_cls))
    terms = jnp.sum(e[0] + jnp.abs(e[1] - e[0]), axis=0) + e_cls
    least = jnp.sum(jnp.min(e, axis=0), axis=0) + e_cls
    safe = jnp.all(terms <= MAX_LOSS * least)
    return functools.partial(jax.lax.cond, safe, difference_sums, split_sums)


def _reach(tables: BinaryTables) -> float:
    """Exponents up to which terms are far from the ends of their precision."""
    return 60.0 if tables.scores.dtype == jnp.float32 else 600.0


def _maxima(tables: BinaryTables) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """The least and the largest that the maximum of a sequence's scores can be, per head."""
    scores, cls_scores = jax.lax.stop_gradient((tables.scores, tables.cls_scores))
    least = jnp.maximum(jnp.max(jnp.min(scores, axis=0), axis=0), cls_scores)
    return least, jnp.maximum(jnp.max(scores, axis=(0, 1)), cls_scores)


def spread_is_safe(tables: BinaryTables) -> Bool[Array, ""]:
    """Whether sums over all sequences are safe for these scores."""
    return jnp.all(_spread(tables) <= 2 * _reach(tables))


def _spread(tables: BinaryTables) -> Float[Array, " H"]:
    least, most = _maxima(tables)
    return most - least


def _exponentials(tables: BinaryTables) -> tuple[Float[Array, "2 T H"], Float[Array, " H"]]:
    """exp(score − shift): no overflow, and no sequence whose terms all vanish.

    Shifting by the least maximum makes every denominator at least 1; only if that lets the largest
    term grow beyond e^reach is the shift raised.
    """
    least, most = _maxima(tables)
    shift = jnp.maximum(least, most - _reach(tables))
    return jnp.exp(tables.scores - shift[None, None]), jnp.exp(tables.cls_scores - shift)


def read_by_selection(
    ones: Float[Array, "m T"],
    tables: BinaryTables,
    drops: Drops | None = None,
) -> Float[Array, "m H v"]:
    """Each sequence by itself: its own scores, its own maximum."""
    chosen = ones[:, :, None] > 0
    scores = jnp.where(chosen, tables.scores[1][None], tables.scores[0][None])  # (m, T, H)
    top = jnp.maximum(jnp.max(scores, axis=1), tables.cls_scores[None])
    top = jax.lax.stop_gradient(top)
    e = jnp.exp(scores - top[:, None])
    e_cls = jnp.exp(tables.cls_scores[None] - top)
    den = jnp.sum(e, axis=1) + e_cls
    if drops is not None:
        e, e_cls = e * drops[0].swapaxes(1, 2), e_cls * drops[1]
    num = jnp.einsum("nth,thv->nhv", jnp.where(chosen, e, 0), tables.values[1])
    num = num + jnp.einsum("nth,thv->nhv", jnp.where(chosen, 0, e), tables.values[0])
    return (num + e_cls[..., None] * tables.cls_values[None]) / den[..., None]
