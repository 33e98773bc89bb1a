"""From the shapes people pass to one flat layout, checked once for every attention."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.core.arguments import check_finite, check_rank
from finetti.core.arrays import as_array
from finetti.core.errors import InputError, UnsupportedError, bad_argument
from finetti.core.numerics.float64 import widest_float


class ContextArrays(NamedTuple):
    """Keys and values, the queries that read them, and which keys count; or a batch of that."""

    query: Float[Array, "*B Q d_k"]
    keys: Float[Array, "*B L d_k"]
    values: Float[Array, "*B L d_v"]
    mask: Bool[Array, "*B L"] | Bool[Array, "*B Q L"] | None


class Contexts(NamedTuple):
    """B contexts of L keys, each read by Q queries. What is masked is cleared already."""

    query: Float[Array, "B Q d_k"]
    keys: Float[Array, "B L d_k"]
    values: Float[Array, "B L d_v"]
    mask: Bool[Array, "B L"] | Bool[Array, "B Q L"] | None
    lead: tuple[int, ...]  # the batch and query axes of the caller
    has_queries: bool = True  # whether the caller has query axes of its own
    is_scalar: bool = False  # whether the caller's values have no axis of their own

    @property
    def arrays(self) -> ContextArrays:
        """The batch without the caller's layout: what a compiled function takes."""
        return ContextArrays(*self[:4])

    @property
    def per_query(self) -> bool:
        """Whether each query has a mask of its own."""
        return self.mask is not None and self.mask.ndim == 3

    def positions(self, owner: str) -> int:
        """How many positions a causal call has: the length of the last query axis."""
        if not self.has_queries:
            raise InputError(
                f"The `query` argument of {owner} must have an axis of positions with "
                "is_causal=True. Got one query per context instead."
            )
        return self.lead[-1]

    def causal(self, owner: str) -> "Contexts":
        """With a mask per query that hides the keys after its position."""
        places = jnp.arange(self.query.shape[1]) % self.positions(owner)
        visible = jnp.arange(self.keys.shape[1])[None, None, :] <= places[None, :, None]
        if self.mask is None:
            visible = jnp.broadcast_to(visible, (len(self.keys), *visible.shape[1:]))
        else:
            visible &= self.mask if self.per_query else self.mask[:, None, :]
        return self._replace(mask=visible)

    def restore(self, flat: Array) -> Array:
        """(B, Q, …) back to the axes and the precision of the caller, who gets no infinity."""
        return _restored(flat, self.lead, self.query.dtype)

    def restore_values(self, flat: Float[Array, "B Q d_v"]) -> Array:
        """What has the coordinates of the values, as the caller gave those."""
        return self.restore(flat[..., 0] if self.is_scalar else flat)

    def restore_variance(self, flat: Float[Array, "B Q"]) -> Array:
        """A variance per query; infinite beyond the caller's precision, since an error bar that is
        cut off would be a wrong one."""
        return flat.astype(self.query.dtype).reshape(self.lead)

    def at_least_float32(self) -> "Contexts":
        """Half precision cast up: scores and their sums need more bits than tokens."""
        if jnp.finfo(self.query.dtype).bits >= 32:
            return self
        query, keys, values = (array.astype(jnp.float32) for array in self[:3])
        return self._replace(query=query, keys=keys, values=values)


def over_contexts(
    function: Callable[..., Any], arrays: ContextArrays, max_entries: int | None = None
) -> Any:
    """Apply ``function(query (Q, d), keys, values, mask (L,) | None)`` to every context.

    As many contexts run together as fit into ``max_entries`` entries of L×L matrices (None: all).
    With per-query masks the function sees one query at a time, the contexts one after the other, so
    that memory stays that of one context.
    """
    if arrays.mask is None or arrays.mask.ndim == 2:
        size, length = arrays.keys.shape[:2]
        together = size if max_entries is None else max(1, max_entries // length**2)
        if size == 1:
            # Products with a batch axis of one are slower than those without.
            alone = jax.tree.map(lambda array: array[0], arrays)
            return jax.tree.map(lambda leaf: leaf[None], function(*alone))
        if together >= size:
            axes = (0, 0, 0, None if arrays.mask is None else 0)
            return jax.vmap(function, in_axes=axes)(*arrays)
        groups = None if together == 1 else together
        return jax.lax.map(lambda args: function(*args), arrays, batch_size=groups)

    def one_context(context: ContextArrays) -> Any:
        return jax.lax.map(
            lambda pair: jax.tree.map(
                # A result per query loses its Q axis of one; one per context has none to lose.
                lambda leaf: leaf[0] if leaf.ndim else leaf,
                function(pair[0][None], context.keys, context.values, pair[1]),
            ),
            (context.query, context.mask),
        )

    return jax.lax.map(one_context, arrays)


def arrange(
    owner: str,
    query: ArrayLike | None,
    keys: ArrayLike,
    values: ArrayLike | None,
    mask: ArrayLike | None,
) -> Contexts:
    """Check the arguments of ``owner`` and flatten them.

    ``query=None`` stands for no queries, ``values=None`` for no columns; values of the shape
    (\\*batch, L) are numbers.
    """
    keys = as_array(keys)
    check_rank(keys, 2, "(..., L, d_k)", "keys", owner)
    batch, length = keys.shape[:-2], keys.shape[-2]
    query = as_array(np.zeros((*batch, 0, keys.shape[-1]), keys.dtype) if query is None else query)
    check_rank(query, 1, "(..., d_k)", "query", owner)
    values = as_array(np.zeros((*batch, length, 0), keys.dtype) if values is None else values)
    is_scalar = values.shape == keys.shape[:-1]
    values = values[..., None] if is_scalar else values
    check_rank(values, 2, "(..., L, d_v)", "values", owner)
    _check_shapes(owner, query, keys, values)
    lead = query.shape[:-1]
    sizes = math.prod(batch), math.prod(lead[len(batch) :])
    kept = None if mask is None else as_mask(owner, mask, batch, lead, length)
    is_shared = kept is not None and kept.shape == (*batch, length)
    dtype = widest_float(query, keys, values)
    arrays: ContextArrays = _flattened(query, keys, values, kept, sizes, is_shared, dtype)
    check_finite(arrays.query, "query", owner)
    check_finite(arrays.keys, "keys", owner)
    check_finite(arrays.values, "values", owner)
    given = arrays.query, arrays.keys, arrays.values, arrays.mask
    return Contexts(*given, lead, len(lead) > len(batch), is_scalar)


# Outside of a program, each operation would be a program of its own for every new shape: one for
# all of them starts sooner, and is called sooner. Inside of one, nothing changes.
@partial(jax.jit, static_argnames=("sizes", "is_shared", "dtype"), inline=True)
def _flattened(
    query: Array,
    keys: Array,
    values: Array,
    mask: Array | None,
    sizes: tuple[int, int],
    is_shared: bool,
    dtype: Any,
) -> ContextArrays:
    """The arguments in one dtype with ``sizes`` = (B, Q), and what is masked cleared."""
    (size, queries), length = sizes, keys.shape[-2]
    query, keys, values = query.astype(dtype), keys.astype(dtype), values.astype(dtype)
    query = query.reshape(size, queries, query.shape[-1])
    keys = keys.reshape(size, length, keys.shape[-1])
    values = values.reshape(size, length, values.shape[-1])
    if mask is not None:
        mask = mask.reshape((size, length) if is_shared else (size, queries, length))
        keys, values = clear_unreadable(keys, values, mask if is_shared else mask.any(axis=1))
    return ContextArrays(query, keys, values, mask)


@partial(jax.jit, static_argnames=("lead", "dtype"), inline=True)
def _restored(flat: Array, lead: tuple[int, ...], dtype: Any) -> Array:
    """What `Contexts.restore` gives."""
    largest = jnp.finfo(dtype).max.astype(flat.dtype)
    # NaN passes, also in gradients: by `clip` alone they would be 0 where there is no answer.
    finite = jnp.where(jnp.isnan(flat), flat, jnp.clip(flat, -largest, largest))
    return finite.astype(dtype).reshape(lead + flat.shape[2:])


def clear_unreadable(
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


def spoiled_rows(arrays: ContextArrays) -> Bool[Array, "B L"]:
    """Pairs that are not finite, unless one mask hides them from all queries."""
    finite = jnp.isfinite(arrays.keys).all(axis=-1) & jnp.isfinite(arrays.values).all(axis=-1)
    return ~finite if arrays.mask is None or arrays.mask.ndim == 3 else ~finite & arrays.mask


@partial(jax.jit, static_argnames="positions", inline=True)
def set_aside_spoiled(
    arrays: ContextArrays, positions: int | None = None
) -> tuple[ContextArrays, Bool[Array, "B Q"]]:
    """The arrays without what is not finite, and which queries ask and read nothing of it.

    Inside ``jit`` NaN cannot be refused. Left where it is, it would reach queries that may not read
    it: 0·NaN is NaN, and so is the mean of the keys. ``positions`` as in `Contexts.positions`.
    """
    query, keys, values, mask = arrays
    spoiled = spoiled_rows(arrays)
    asked = jnp.isfinite(query).all(axis=-1)
    places = None if positions is None else jnp.arange(query.shape[1]) % positions
    if mask is not None and mask.ndim == 3:
        if places is not None:
            mask = mask & (jnp.arange(keys.shape[1])[None, None] <= places[None, :, None])
        read = (mask & spoiled[:, None, :]).any(axis=-1)
    elif places is not None:
        read = jax.lax.cummax(spoiled.astype(jnp.int8), axis=1) > 0
        read = read[:, jnp.minimum(places, keys.shape[1] - 1)]
    else:
        read = spoiled.any(axis=-1, keepdims=True)
    keys, values = clear_unreadable(keys, values, ~spoiled)
    query = jnp.where(asked[..., None], query, 0)
    return arrays._replace(query=query, keys=keys, values=values), asked & ~read


def mark_unknown(answers: Float[Array, "B Q *rest"], known: Bool[Array, "B Q"]) -> Array:
    """The answers, NaN to queries that are not `known` (`set_aside_spoiled`)."""
    return jnp.where(known.reshape(*known.shape, *(1,) * (answers.ndim - 2)), answers, jnp.nan)


def _check_shapes(owner: str, query: Array, keys: Array, values: Array) -> None:
    *batch, length, d_k = keys.shape
    given = f"shape {query.shape} with keys of shape {keys.shape}"
    if length == 0:
        raise bad_argument("keys", owner, "at least one key", f"shape {keys.shape}")
    if d_k == 0:
        raise bad_argument("keys", owner, "of at least one dimension", f"shape {keys.shape}")
    if query.shape[-1] != d_k:
        raise bad_argument("query", owner, f"of the keys' dimension d_k = {d_k}", given)
    if query.shape[: len(batch)] != tuple(batch) or query.ndim <= len(batch):
        shape = (*batch, "...", d_k)
        requirement = f"of shape {shape}, leading with the batch axes of the keys"
        raise bad_argument("query", owner, requirement, given)
    if values.shape[:-1] != keys.shape[:-1]:
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
