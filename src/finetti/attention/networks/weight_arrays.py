"""What every network checks of its weights, and how it draws them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from finetti.core.arguments import check_finite
from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.float64 import widest_float


def as_weights(
    value: ArrayLike, argument: str, owner: str, axes: str, sizes: tuple[int | None, ...]
) -> Float[Array, "..."]:
    """``value`` as a floating array with the axes named in ``axes``; None is any size ≥ 1."""
    array = as_array(value)
    fits = array.ndim == len(sizes) and all(
        size >= 1 and wanted in (None, size)
        for size, wanted in zip(array.shape, sizes, strict=True)
    )
    if not fits:
        known = ", ".join("any" if size is None else str(size) for size in sizes)
        raise bad_argument(argument, owner, f"of shape {axes} = ({known})", f"shape {array.shape}")
    check_finite(array, argument, owner)
    return array.astype(widest_float(array))


def as_projections(
    owner: str,
    axes: tuple[str, ...],
    query_weights: ArrayLike,
    key_weights: ArrayLike,
    value_weights: ArrayLike,
    output_weights: ArrayLike | None = None,
    *,
    own_queries: bool = False,
) -> tuple[Array, Array, Array, Any]:
    """W_q, W_k, W_v, W_o of one head or several, with the ``axes`` (…, d, k), (…, d, v), (…, v, o).

    The heads are leading axes. ``own_queries`` lets queries have another dimension than tokens.
    """
    sizes = (None,) * (axes[0].count(",") + 1)
    queries = as_weights(query_weights, "query_weights", owner, axes[0], sizes)
    *heads, _, width = queries.shape
    sizes = (*heads, None, width) if own_queries else queries.shape
    keys = as_weights(key_weights, "key_weights", owner, axes[0], sizes)
    sizes = (*heads, keys.shape[-2], None)
    values = as_weights(value_weights, "value_weights", owner, axes[1], sizes)
    if output_weights is not None:
        sizes = (*heads, values.shape[-1], None)
        output_weights = as_weights(output_weights, "output_weights", owner, axes[2], sizes)
    return queries, keys, values, output_weights


def as_sequence(
    value: ArrayLike, argument: str, owner: str, dimension: int, mask: ArrayLike | None = None
) -> Float[Array, "*batch T d"]:
    """``value`` as tokens (…, T, d) with at least one token of the given dimension."""
    array = as_array(value)
    if array.ndim < 2 or array.shape[-1] != dimension or array.shape[-2] == 0:
        raise bad_argument(argument, owner, f"of shape (..., T, {dimension})", array.shape)
    array = clear_masked(array, mask)
    check_finite(array, argument, owner)
    return array.astype(widest_float(array))


def clear_masked(tokens: Array, mask: ArrayLike | None) -> Float[Array, "*batch T d"]:
    """Tokens that no query may read are 0 where they are not finite: they must not matter."""
    if mask is None:
        return tokens
    readable, batch = as_array(mask), tokens.ndim - 2
    if readable.ndim <= batch or readable.dtype != bool or readable.shape[-1] != tokens.shape[-2]:
        return tokens  # such a mask is refused by name where it is used
    readable = readable.any(axis=tuple(range(batch, readable.ndim - 1)))
    return jnp.where(readable[..., None] | jnp.isfinite(tokens), tokens, 0)


def promote(*arrays: Array) -> tuple[Array, ...]:
    """The arrays in the widest of their floating dtypes."""
    dtype = widest_float(*arrays)
    return tuple(array.astype(dtype) for array in arrays)


def draw(key: PRNGKeyArray, *shape: int, fan_in: int) -> Float[Array, "..."]:
    """Independent N(0, 1/fan_in) weights: a token of length 1 keeps its length on average."""
    return jax.random.normal(key, shape) / fan_in**0.5


def draw_projections(
    key: PRNGKeyArray, dimension: int, head_dimension: int, *heads: int
) -> tuple[Array, Array, Array, Array]:
    """W_q, W_k, W_v, (…, d, k), and W_o, (…, k, d), by `draw`; ``heads`` are leading axes."""
    *inside, output = jax.random.split(key, 4)
    query, keys, values = (
        draw(each, *heads, dimension, head_dimension, fan_in=dimension) for each in inside
    )
    total = math.prod(heads) * head_dimension
    return query, keys, values, draw(output, *heads, head_dimension, dimension, fan_in=total)
