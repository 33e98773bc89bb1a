"""Attention of [CLS] over binary tokens by tables: exact, one matrix product for a whole batch.

Where a token is one of two vectors at each position (position-wise maps such as LayerNorm included)
only 2T + 1 keys and values exist. Scores and values are then tables, and a batch of bit strings
X ∈ {0,1}^{m×T} needs no (m, H, T, T) attention at all. The networks are those of Section 5,
edelman2022; the tables are ours.
"""

import functools
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.networks.weights import promote
from finetti.core.arrays import is_concrete
from finetti.core.conversion import as_array
from finetti.core.errors import InputError, bad_argument
from finetti.probe.cls_attention.cls_tables import BinaryTables

Method = Literal["split", "difference", "auto", "select"]
MAX_LOSS = 8.0  # times the rounding error of "split" that "auto" accepts: three bits


def binary_attention(
    bits: ArrayLike,
    tables: BinaryTables,
    *,
    dropout: ArrayLike | None = None,
    cls_dropout: ArrayLike | None = None,
    method: Method = "split",
) -> Float[Array, "m H v"]:
    """What [CLS] reads from each bit string, per head.

    out = num / den, den = Xe_1 + (1−X)e_0 + e_cls, num = X(e_1v_1) + (1−X)(e_0v_0) + e_cls v_cls
    with e = exp(s − shift_h).

    Args:
        bits: X, shape (m, T), zeros and ones of any dtype.
        tables: from `binary_tables`.
        dropout: what multiplies the attention weights on the T tokens, shape (m, H, T): 0 or
            1/(1 − rate). The denominator does not feel it.
        cls_dropout: the same for [CLS] itself, shape (m, H).
        method: "split" adds nonnegative terms only; "difference" is X(e_1 − e_0) + Σe_0, half the
            work, with an error of about ε·Σe_0/den (with dropout it is the denominator's form
            only); "select" takes the maximum of each sequence by itself, safe for any scores but
            with (m, H, T) numbers in memory; "auto" decides by the scores, also inside ``jit``:
            "difference" where no sequence can lose more than three bits by it, "split" where that
            is safe, "select" elsewhere.

    "split" and "difference" are safe while the largest score of a head exceeds the least maximum
    that a sequence can have by less than 120 in float32, 1200 in float64. Beyond that they are
    refused; inside ``jit``, where scores cannot be looked at, the answer may be NaN.

    >>> import jax, jax.numpy as jnp
    >>> from finetti.probe.cls_attention.cls_tables import binary_tables
    >>> key = jax.random.key(0)
    >>> tokens, cls = jax.random.normal(key, (2, 100, 8)), jnp.ones(8)
    >>> weights = jax.random.normal(key, (3, 4, 8, 2)) / 8**0.5
    >>> tables = binary_tables(tokens, cls, *weights)
    >>> binary_attention(jax.random.bernoulli(key, shape=(32, 100)), tables).shape
    (32, 4, 2)
    """
    owner = "binary_attention"
    tables = BinaryTables(*promote(*tables))
    _, length, heads, _ = tables.values.shape
    ones = _as_bits(bits, length, tables.scores.dtype, owner)
    dropout = as_multiplier(dropout, "dropout", owner, (len(ones), heads, length), ones.dtype)
    cls_dropout = as_multiplier(cls_dropout, "cls_dropout", owner, (len(ones), heads), ones.dtype)
    if method not in get_args(Method):
        raise bad_argument("method", owner, f"one of {get_args(Method)}", repr(method))
    drops = dropout, cls_dropout
    if method == "select":
        return _by_selection(ones, tables, *drops)
    spread = _spread(tables)
    if method == "auto":
        return jax.lax.cond(
            spread_is_safe(tables),
            lambda: _by_sums(ones, tables, *drops, None),
            # Computed again for the gradient: what it kept would be (m, H, T) zeros in the other
            # case, and to write these takes longer than all the rest.
            jax.checkpoint(lambda: _by_selection(ones, tables, *drops)),
        )
    if is_concrete(spread) and float(jnp.max(spread)) > 2 * _reach(tables):
        raise InputError(
            f"The scores in the `tables` argument of {owner} spread over "
            f"{float(jnp.max(spread)):.0f}, so that a sequence without the largest of them would "
            'underflow. Use method="select" or "auto".'
        )
    by = {"split": _split_sums, "difference": _difference_sums}[method]
    return _by_sums(ones, tables, *drops, by)


def _by_sums(
    ones: Float[Array, "m T"],
    tables: BinaryTables,
    dropout: Float[Array, "m H T"] | None,
    cls_dropout: Float[Array, "m H"] | None,
    by: Any,
) -> Float[Array, "m H v"]:
    """All sequences by one matrix product; ``by`` None takes the cheaper one that is accurate."""
    _, length, heads, _ = tables.values.shape
    e, e_cls = _exponentials(tables)
    # A column for each denominator, then one for each numerator; heads last, as there are more of
    # them than entries of a value, and the last axis is what a processor works on at once.
    weighted = e[:, :, None] * tables.values.swapaxes(2, 3)  # (2, T, v, H)
    flat = jnp.concatenate([e, weighted.reshape(2, length, -1)], axis=2)
    sums = (by or _safe_sums(e, e_cls))(ones, flat)
    den = sums[:, :heads] + e_cls[None]
    num = sums[:, heads:].reshape(len(ones), weighted.shape[2], heads)
    if dropout is not None:
        kept = dropout * ones[:, None, :]
        num = jnp.einsum("nht,tvh->nvh", kept, weighted[1])
        num = num + jnp.einsum("nht,tvh->nvh", dropout - kept, weighted[0])
    own = cls_part(e_cls[None], tables.cls_values, cls_dropout).swapaxes(1, 2)
    # The gradient of a quotient has the square of its denominator, which may be e^±120: beyond
    # float32. So that denominators are 1, they are divided by themselves, taken as constants.
    size = jax.lax.stop_gradient(den)
    return ((num + own) / size[:, None] / (den / size)[:, None]).swapaxes(1, 2)


def _split_sums(ones: Float[Array, "m T"], flat: Float[Array, "2 T c"]) -> Float[Array, "m c"]:
    return ones @ flat[1] + (1 - ones) @ flat[0]


def _difference_sums(ones: Float[Array, "m T"], flat: Float[Array, "2 T c"]) -> Float[Array, "m c"]:
    return ones @ (flat[1] - flat[0]) + jnp.sum(flat[0], axis=0)[None]


def _safe_sums(e: Float[Array, "2 T H"], e_cls: Float[Array, " H"]) -> Any:
    """The sums by "difference" if its terms are at most `MAX_LOSS` times any denominator.

    All denominators, whatever the bits, are at least Σ_t min(e_0, e_1) + e_cls.
    """
    e, e_cls = jax.lax.stop_gradient((e, e_cls))
    terms = jnp.sum(e[0] + jnp.abs(e[1] - e[0]), axis=0) + e_cls
    least = jnp.sum(jnp.min(e, axis=0), axis=0) + e_cls
    safe = jnp.all(terms <= MAX_LOSS * least)
    return functools.partial(jax.lax.cond, safe, _difference_sums, _split_sums)


def _reach(tables: BinaryTables) -> float:
    """Exponents up to which terms are far from the ends of their precision."""
    return 60.0 if tables.scores.dtype == jnp.float32 else 600.0


def _maxima(tables: BinaryTables) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """The least and the largest that the maximum of a sequence's scores can be, per head."""
    scores, cls_scores = jax.lax.stop_gradient((tables.scores, tables.cls_scores))
    least = jnp.maximum(jnp.max(jnp.min(scores, axis=0), axis=0), cls_scores)
    return least, jnp.maximum(jnp.max(scores, axis=(0, 1)), cls_scores)


def spread_is_safe(tables: BinaryTables) -> Bool[Array, ""]:
    """Whether "split" and "difference" are safe for these scores; also known inside ``jit``."""
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


def _by_selection(
    ones: Float[Array, "m T"],
    tables: BinaryTables,
    dropout: Float[Array, "m H T"] | None,
    cls_dropout: Float[Array, "m H"] | None,
) -> Float[Array, "m H v"]:
    """Each sequence by itself: its own scores, its own maximum."""
    chosen = ones[:, :, None] > 0
    scores = jnp.where(chosen, tables.scores[1][None], tables.scores[0][None])  # (m, T, H)
    top = jnp.maximum(jnp.max(scores, axis=1), tables.cls_scores[None])
    top = jax.lax.stop_gradient(top)
    e = jnp.exp(scores - top[:, None])
    e_cls = jnp.exp(tables.cls_scores[None] - top)
    den = jnp.sum(e, axis=1) + e_cls
    e = e if dropout is None else e * dropout.swapaxes(1, 2)
    num = jnp.einsum("nth,thv->nhv", jnp.where(chosen, e, 0), tables.values[1])
    num = num + jnp.einsum("nth,thv->nhv", jnp.where(chosen, 0, e), tables.values[0])
    return (num + cls_part(e_cls, tables.cls_values, cls_dropout)) / den[..., None]


def _as_bits(bits: ArrayLike, length: int, dtype: Any, owner: str) -> Float[Array, "m T"]:
    bits = as_array(bits)
    if bits.ndim != 2 or bits.shape[1] != length:
        raise bad_argument("bits", owner, f"of shape (m, T = {length})", f"shape {bits.shape}")
    ones = bits.astype(dtype)
    if is_concrete(ones) and not bool(jnp.all((ones == 0) | (ones == 1))):
        raise bad_argument("bits", owner, "zeros and ones", "other values")
    return ones


def cls_part(
    e_cls: Float[Array, "n H"],
    cls_values: Float[Array, "H v"],
    cls_dropout: Float[Array, "m H"] | None,
) -> Float[Array, "_ H v"]:
    """[CLS]'s own term of the numerator; n is m or 1."""
    if cls_dropout is not None:
        e_cls = e_cls * cls_dropout
    return e_cls[..., None] * cls_values[None]


def as_multiplier(
    value: ArrayLike | None, argument: str, owner: str, shape: tuple[int, ...], dtype: Any
) -> Float[Array, "..."] | None:
    """A dropout mask in the precision of the data."""
    if value is None:
        return None
    array = as_array(value)
    if array.shape != shape:
        raise bad_argument(argument, owner, f"of shape {shape}", f"shape {array.shape}")
    return array.astype(dtype)
