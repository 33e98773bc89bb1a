"""Maps in blocks: as fast as ``vmap``, in memory that does not grow with the number of items."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from finetti.attention.context_batch import ContextArrays, over_contexts

# Numbers in the largest temporary of a block: a few megabytes, which stay near the processor.
MAX_BLOCK_ENTRIES = 2**19


def block_size(per_item: int) -> int:
    """How many items fit in a block when each needs ``per_item`` numbers; at least one."""
    return max(1, MAX_BLOCK_ENTRIES // max(1, per_item))


def map_blocks(function: Callable[[Any], Any], items: Any, per_item: int) -> Any:
    """``vmap(function)(items)``, one block after the other if they do not fit in one.

    The gradient computes each block again instead of storing it, so that it is bounded as well.
    """
    size = block_size(per_item)
    length = jax.tree.leaves(items)[0].shape[0]
    if length <= size:
        return jax.vmap(function)(items)
    return jax.lax.map(jax.checkpoint(function), items, batch_size=size)


def over_queries(
    function: Callable[..., Array], arrays: ContextArrays, positions: int | None = None
) -> Array:
    """``function(query (Q, d_k), keys, values, mask (#Q, L) | None)`` of every context.

    Queries that read the same keys go through in one piece. Where a mask per query tells them
    apart, or causality (``positions`` is the length of the last query axis), they do in blocks, so
    that memory is linear in L and no causal mask of Q × L entries is ever made.
    """
    per_query = arrays.mask is not None and arrays.mask.ndim == 3
    if not per_query and positions is None:

        def whole(query: Array, keys: Array, values: Array, mask: Array | None) -> Array:
            return function(query, keys, values, None if mask is None else mask[None])

        return over_contexts(whole, arrays)
    (_, queries, _), length = arrays.query.shape, arrays.keys.shape[1]
    places = jnp.arange(queries) % positions if positions else None

    def one_context(context: ContextArrays) -> Array:
        def rows(block: Any) -> Array:
            query, places, masks = block
            mask = masks if per_query or context.mask is None else context.mask[None]
            if places is not None:
                past = jnp.arange(length)[None] <= places[:, None]
                mask = past if mask is None else mask & past
            return function(query, context.keys, context.values, mask)

        masks = context.mask if per_query else None
        return _in_blocks(rows, (context.query, places, masks), block_size(length))

    if queries > block_size(length):
        return jax.lax.map(one_context, arrays)
    return map_blocks(one_context, arrays, queries * length)


def _in_blocks(function: Callable[[Any], Array], items: Any, size: int) -> Array:
    """``function`` of at most ``size`` items at a time; the gradient computes them again."""
    length = len(jax.tree.leaves(items)[0])
    if length <= size:
        return function(items)
    n_blocks = -(-length // size)
    size = -(-length // n_blocks)  # as even as they can be, filled up with zeros

    def fold(array: Array) -> Array:
        fill = (0, n_blocks * size - length), *((0, 0),) * (array.ndim - 1)
        return jnp.pad(array, fill).reshape(n_blocks, size, *array.shape[1:])

    blocks = jax.lax.map(jax.checkpoint(function), jax.tree.map(fold, items))
    return blocks.reshape(-1, *blocks.shape[2:])[:length]
