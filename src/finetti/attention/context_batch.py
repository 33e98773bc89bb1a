"""One door for all attention: what people pass is checked once, and brought to one flat layout
inside of the compiled program that reads it."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.core.arguments import check_finite, check_rank
from finetti.core.arrays import as_array, has_infinity, has_nan
from finetti.core.errors import InputError, UnsupportedError, bad_argument
from finetti.core.numerics.float64 import widest_float

# Numbers in the largest temporary of a block: a few megabytes, which stay near the processor.
MAX_BLOCK_ENTRIES = 2**19
# Scores of a context, 64 MB in float32, from which queries that read the same keys go in blocks.
MAX_SHARED_ENTRIES = 2**24


class ContextArrays(NamedTuple):
    """Keys and values, the queries that read them, and which keys count; or a batch of that."""

    query: Float[Array, "*B Q d_k"]
    keys: Float[Array, "*B L d_k"]
    values: Float[Array, "*B L d_v"]
    mask: Bool[Array, "*B L"] | Bool[Array, "*B Q L"] | None

    def causal(self, positions: int) -> "ContextArrays":
        """With a mask per query that also hides the keys after its position."""
        places = jnp.arange(self.query.shape[1]) % positions
        visible = jnp.arange(self.keys.shape[1])[None, None, :] <= places[None, :, None]
        if self.mask is None:
            visible = jnp.broadcast_to(visible, (len(self.keys), *visible.shape[1:]))
        else:
            visible &= self.mask if self.mask.ndim == 3 else self.mask[:, None, :]
        return self._replace(mask=visible)


class Given(NamedTuple):
    """The arguments of a call as they came; what only functional forms have comes last."""

    query: Array | None
    keys: Array
    values: Array | None
    mask: Array | None
    bias: Array | None = None
    scale: Any = None
    query_lengths: Array | None = None
    key_lengths: Array | None = None


class HeadAxes(Protocol):
    """How arguments with axes of heads become contexts, and answers get these axes back."""

    def split(self, given: Given) -> tuple[Array | None, Array, Array | None, Array | None]:
        """Query, keys, values and mask with the axes that `TokenLayout` states."""
        ...

    def bias(self, given: Given) -> Array:
        """The bias as (1 or B, 1 or Q, L)."""
        ...

    def gate(self, gate: Array) -> Array:
        """A gate as (B, L, …)."""
        ...

    def join(self, answers: Array, given: Given) -> Array:
        """The answers (\\*lead, …) in the axes of the caller."""
        ...


@dataclass(frozen=True)
class TokenLayout:
    """All that is known of a call without its numbers: B contexts of L keys, Q queries in each."""

    batch: tuple[int, ...]
    lead: tuple[int, ...]  # the batch and query axes
    length: int
    d_k: int
    d_v: int
    dtype: Any  # that of the answer
    per_query: bool  # whether each query has a mask of its own
    is_scalar: bool = False  # whether the caller's values have no axis of their own
    heads: HeadAxes | None = None

    @property
    def size(self) -> int:
        """B."""
        return math.prod(self.batch)

    @property
    def queries(self) -> int:
        """Q."""
        return math.prod(self.lead[len(self.batch) :])

    @property
    def working_dtype(self) -> Any:
        """That of the answer, but float32 at least: scores and their sums need more bits."""
        return jnp.float32 if jnp.finfo(self.dtype).bits < 32 else self.dtype


@functools.partial(jax.tree_util.register_dataclass, data_fields=["given"], meta_fields=["layout"])
@dataclass(frozen=True, eq=False)
class Contexts:
    """A checked call: the arguments as they came, and their layout."""

    given: Given
    layout: TokenLayout

    @property
    def arrays(self) -> ContextArrays:
        """The flat batch, in one dtype of at least float32, what is masked cleared."""
        return _arranged(self)

    @property
    def bias(self) -> Float[Array, "#B #Q L"] | None:
        """What is added to the logarithms of scores."""
        if self.given.bias is None or self.layout.heads is None:
            return None
        return self.layout.heads.bias(self.given).astype(self.layout.working_dtype)

    def scaled(self, module: Any) -> Any:
        """The module as it reads √scale·tokens, where the call has a scale."""
        scale = self.given.scale
        if scale is None:
            return module
        return module.on_scaled_tokens(jnp.asarray(scale, self.layout.working_dtype))

    def positions(self, owner: str) -> int:
        """How many positions a causal call has: the length of the last query axis."""
        if len(self.layout.lead) == len(self.layout.batch):
            raise InputError(
                f"The `query` argument of {owner} must have an axis of positions with "
                "is_causal=True. Got one query per context instead."
            )
        return self.layout.lead[-1]

    def run(self, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        """``function(contexts, *operands, **options)``, compiled once per layout and options.

        The layout is made inside of the program: each operation outside of one would be a program
        of its own for every new shape.
        """
        return _program(function, tuple(options.items()))(self, *operands)

    def restore(self, flat: Array) -> Array:
        """(B, Q, …) back to the axes and the precision of the caller, who gets no infinity."""
        return _restored(self, flat, is_finite=True)

    def restore_values(self, flat: Float[Array, "B Q d_v"]) -> Array:
        """What has the coordinates of the values, as the caller gave those."""
        return self.restore(flat[..., 0] if self.layout.is_scalar else flat)

    def restore_variance(self, flat: Float[Array, "B Q"]) -> Array:
        """A variance per query; infinite beyond the caller's precision, since an error bar that is
        cut off would be a wrong one."""
        return _restored(self, flat, is_finite=False)


@functools.cache
def _program(function: Callable[..., Any], options: tuple[tuple[str, Any], ...]) -> Any:
    def run(contexts: Contexts, *operands: Any) -> Any:
        return function(contexts, *operands, **dict(options))

    # Profiles show programs by name.
    words = [value for _, value in options if isinstance(value, str)]
    run.__name__ = "_".join(["finetti", function.__name__.strip("_"), *words])
    return jax.jit(run)


@functools.partial(jax.jit, inline=True)
def _arranged(contexts: Contexts) -> ContextArrays:
    given, layout = contexts.given, contexts.layout
    query, keys, values, mask = given[:4] if layout.heads is None else layout.heads.split(given)
    size, queries, length, dtype = layout.size, layout.queries, layout.length, layout.working_dtype
    if query is None:
        query = jnp.zeros((size, queries, layout.d_k), dtype)
    if values is None:
        values = jnp.zeros((size, length, layout.d_v), dtype)
    query = query.astype(dtype).reshape(size, queries, layout.d_k)
    keys = keys.astype(dtype).reshape(size, length, layout.d_k)
    values = values.astype(dtype).reshape(size, length, layout.d_v)
    if mask is not None:
        mask = mask.reshape((size, queries, length) if layout.per_query else (size, length))
        readable = mask.any(axis=1) if layout.per_query else mask
        keys, values = clear_masked(keys, values, readable)
    return ContextArrays(query, keys, values, mask)


@functools.partial(jax.jit, static_argnames="is_finite", inline=True)
def _restored(contexts: Contexts, flat: Array, is_finite: bool) -> Array:
    layout = contexts.layout
    if is_finite:
        largest = jnp.finfo(layout.dtype).max.astype(flat.dtype)
        # NaN passes, also in gradients: by `clip` alone they would be 0 where there is no answer.
        flat = jnp.where(jnp.isnan(flat), flat, jnp.clip(flat, -largest, largest))
    answers = flat.astype(layout.dtype).reshape(layout.lead + flat.shape[2:])
    return answers if layout.heads is None else layout.heads.join(answers, contexts.given)


def clear_masked(
    keys: Float[Array, "*batch L d_k"],
    values: Float[Array, "*batch L d_v"],
    readable: Bool[Array, "*batch L"],
) -> tuple[Float[Array, "*batch L d_k"], Float[Array, "*batch L d_v"]]:
    """Clear what no query may read: it must not matter, even if it is NaN.

    Such keys become the mean of the others, so that distances are still taken from among those.
    Values become 0 only where they are not finite: their weight is 0, and a softmax query that may
    read nothing averages all values, as in JAX.
    """
    kept = readable[..., None]
    count = jnp.maximum(jnp.sum(kept, axis=-2, keepdims=True), 1).astype(keys.dtype)
    mean = jnp.sum(jnp.where(kept, keys, 0) / count, axis=-2, keepdims=True)
    cleared = jnp.where(kept, keys, jax.lax.stop_gradient(mean))
    return cleared, jnp.where(kept | jnp.isfinite(values), values, 0)


def arrange(
    owner: str,
    query: ArrayLike | None,
    keys: ArrayLike,
    values: ArrayLike | None,
    mask: ArrayLike | None,
) -> Contexts:
    """Check the arguments of ``owner``.

    ``query=None`` stands for no queries, ``values=None`` for no columns; values of the shape
    (\\*batch, L) are numbers.
    """
    keys = as_array(keys)
    check_rank(keys, 2, "(..., L, d_k)", "keys", owner)
    *batch, length, d_k = keys.shape
    lead, d_v, is_scalar = (*batch, 0), 0, False
    if query is not None:
        query = as_array(query)
        check_rank(query, 1, "(..., d_k)", "query", owner)
        lead = query.shape[:-1]
    if values is not None:
        values = as_array(values)
        is_scalar = values.shape == keys.shape[:-1]
        values = values[..., None] if is_scalar else values
        check_rank(values, 2, "(..., L, d_v)", "values", owner)
        d_v = values.shape[-1]
    _check_shapes(owner, query, keys, values)
    kept = None if mask is None else as_mask(owner, mask, tuple(batch), lead, length)
    per_query = kept is not None and kept.shape != (*batch, length)
    dtype = widest_float(*(array for array in (query, keys, values) if array is not None))
    layout = TokenLayout(tuple(batch), lead, length, d_k, d_v, dtype, per_query, is_scalar)
    contexts = Contexts(Given(query, keys, values, kept), layout)
    check_readable(owner, contexts, ("query", "keys", "values"), kept is not None)
    return contexts


def check_readable(
    owner: str, contexts: Contexts, names: tuple[str, str, str], is_masked: bool
) -> None:
    """Refuse NaN and infinity, where they can be seen, but for keys and values that are masked."""
    if contexts.given.query is not None:
        check_finite(contexts.given.query, names[0], owner)
    for place in (1, 2):
        array = contexts.given[place]
        if array is None:
            continue
        if not is_masked:
            check_finite(array, names[place], owner)
        elif has_nan(array) or has_infinity(array):
            check_finite(contexts.arrays[place], names[place], owner)


def _check_shapes(owner: str, query: Array | None, keys: Array, values: Array | None) -> None:
    *batch, length, d_k = keys.shape
    if length == 0:
        raise bad_argument("keys", owner, "at least one key", f"shape {keys.shape}")
    if d_k == 0:
        raise bad_argument("keys", owner, "of at least one dimension", f"shape {keys.shape}")
    if query is not None:
        given = f"shape {query.shape} with keys of shape {keys.shape}"
        if query.shape[-1] != d_k:
            raise bad_argument("query", owner, f"of the keys' dimension d_k = {d_k}", given)
        if query.shape[: len(batch)] != tuple(batch) or query.ndim <= len(batch):
            shape = (*batch, "...", d_k)
            requirement = f"of shape {shape}, leading with the batch axes of the keys"
            raise bad_argument("query", owner, requirement, given)
    if values is not None and values.shape[:-1] != keys.shape[:-1]:
        requirement = f"one per key, of shape {(*batch, length, 'd_v')}"
        raise bad_argument("values", owner, requirement, f"shape {values.shape}")


def as_mask(
    owner: str,
    mask: ArrayLike,
    batch: tuple[int, ...],
    lead: tuple[int, ...],
    length: int,
    read: str = "key",
) -> Bool[Array, "..."]:
    """A mask (\\*batch, L) for all queries, or (\\*batch, \\*queries, L) for each its own."""
    mask = as_boolean(owner, mask, read)
    one, each = (*batch, length), (*lead, length)
    if mask.shape not in (one, each):
        requirement = f"of shape {one}"
        if 0 not in lead:  # else there are no queries to have masks of their own
            requirement += f" (one for all queries) or {each} (one per query)"
        raise bad_argument("mask", owner, requirement, f"shape {mask.shape}")
    return mask


def as_boolean(owner: str, mask: ArrayLike, read: str = "key") -> Bool[Array, "..."]:
    """The mask, if it is one."""
    try:
        mask = as_array(mask)
    except UnsupportedError:  # a tensor of PyTorch
        raise
    except (TypeError, ValueError) as error:  # a kernel, say, that was given without its name
        wanted = f"an array of booleans, True where a {read} may be read"
        raise bad_argument("mask", owner, wanted, f"{type(mask).__name__}") from error
    if mask.dtype != bool:
        raise InputError(
            f"The `mask` argument of {owner} must be boolean, True where a {read} may be read. Got "
            f"dtype {mask.dtype} instead. Convert it with `mask != 0`."
        )
    return mask


def map_contexts(function: Callable[[Any], Any], items: Any, together: int | None = None) -> Any:
    """``function`` of every item of a tree of arrays, ``together`` at a time (None: all)."""
    size = len(jax.tree.leaves(items)[0])
    if size == 1:
        # Products with a batch axis of one are slower than those without.
        alone = jax.tree.map(lambda array: array[0], items)
        return jax.tree.map(lambda leaf: leaf[None], function(alone))
    if together is None or together >= size:
        return jax.vmap(function)(items)
    return jax.lax.map(function, items, batch_size=None if together == 1 else together)


def over_contexts(
    function: Callable[..., Any],
    arrays: ContextArrays,
    max_entries: int | None = None,
    *more: Any,
) -> Any:
    """Apply ``function(query (Q, d), keys, values, mask (L,) | None, *more)`` to every context.

    As many contexts run together as fit into ``max_entries`` entries of L×L matrices (None: all).
    With per-query masks the function sees one query at a time, the contexts one after the other, so
    that memory stays that of one context.
    """
    if arrays.mask is None or arrays.mask.ndim == 2:
        length = arrays.keys.shape[1]
        together = None if max_entries is None else max(1, max_entries // length**2)
        return map_contexts(lambda item: function(*item[0], *item[1]), (arrays, more), together)

    def one_context(item: tuple[ContextArrays, Any]) -> Any:
        context, own = item
        return jax.lax.map(
            lambda pair: jax.tree.map(
                # A result per query loses its Q axis of one; one per context has none to lose.
                lambda leaf: leaf[0] if leaf.ndim else leaf,
                function(pair[0][None], context.keys, context.values, pair[1], *own),
            ),
            (context.query, context.mask),
        )

    return jax.lax.map(one_context, (arrays, more))


def over_queries(
    function: Callable[..., Any],
    arrays: ContextArrays,
    positions: int | None = None,
    bias: Float[Array, "#B #Q L"] | None = None,
) -> Any:
    """``function(query (Q, d_k), keys, values, mask (#Q, L) | None, bias (#Q, L) | None)`` of every
    context.

    Where a mask per query tells queries apart, or causality (``positions`` is the length of the
    last query axis), or where there are many, they go through in blocks, so that memory is linear
    in L and no causal mask of Q × L entries is ever made.
    """
    per_query = arrays.mask is not None and arrays.mask.ndim == 3
    queries, length = arrays.query.shape[1], arrays.keys.shape[1]
    in_blocks = per_query or positions is not None or queries * length > MAX_SHARED_ENTRIES
    places = jnp.arange(queries) % positions if positions else None
    shared_bias = bias[0] if bias is not None and len(bias) == 1 else None
    own_bias = bias if shared_bias is None else None

    def one_context(item: tuple[ContextArrays, Array | None]) -> Any:
        context, own = item
        added = shared_bias if own is None else own
        each_bias = added is not None and len(added) > 1

        def rows(block: Any) -> Any:
            query, places, masks, biases = block
            mask = masks if per_query or context.mask is None else context.mask[None]
            if places is not None:
                past = jnp.arange(length)[None] <= places[:, None]
                mask = past if mask is None else mask & past
            biases = biases if each_bias else added
            return function(query, context.keys, context.values, mask, biases)

        masks = context.mask if per_query else None
        block = context.query, places, masks, added if each_bias else None
        return _in_blocks(rows, block, block_size(length) if in_blocks else queries)

    if not in_blocks:
        return map_contexts(one_context, (arrays, own_bias))
    if queries > block_size(length):
        return jax.lax.map(one_context, (arrays, own_bias))
    return map_blocks(one_context, (arrays, own_bias), queries * length)


def block_size(per_item: int) -> int:
    """How many items fit in a block when each needs ``per_item`` numbers; at least one."""
    return max(1, MAX_BLOCK_ENTRIES // max(1, per_item))


def map_blocks(function: Callable[[Any], Any], items: Any, per_item: int) -> Any:
    """``vmap(function)(items)``, one block after the other if they do not fit in one.

    The gradient computes each block again instead of storing it, so that it is bounded as well.
    """
    size = block_size(per_item)
    if len(jax.tree.leaves(items)[0]) <= size:
        return jax.vmap(function)(items)
    return jax.lax.map(jax.checkpoint(function), items, batch_size=size)


def split_rows(rows: Array, size: int) -> Array:
    """(N, …) in blocks (⌈N/size⌉, size, …), filled up with zeros."""
    n_blocks = -(-len(rows) // size)
    fill = (0, n_blocks * size - len(rows)), *((0, 0),) * (rows.ndim - 1)
    return jnp.pad(rows, fill).reshape(n_blocks, size, *rows.shape[1:])


def _in_blocks(function: Callable[[Any], Any], items: Any, size: int) -> Any:
    """``function`` of at most ``size`` items at a time; the gradient computes them again."""
    length = len(jax.tree.leaves(items)[0])
    if length <= size:
        return function(items)
    size = -(-length // -(-length // size))  # as even as they can be
    split = jax.tree.map(lambda rows: split_rows(rows, size), items)
    blocks = jax.lax.map(jax.checkpoint(function), split)
    return jax.tree.map(lambda rows: rows.reshape(-1, *rows.shape[2:])[:length], blocks)
