"""Incremental decoding: append a key and value to a factored context in O(L²), read in O(L²).

A new key adds one row to the Cholesky factor, g = G⁻¹K(K, k) and √(K(k, k) + λ − g·g), and one row
to U = G⁻¹V; nothing before it changes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.decoding.decode_state import (
    DecodeState,
    Double,
    as_token,
    batched,
    join,
    split,
)
from finetti.core.arguments import as_whole
from finetti.core.arrays import is_concrete
from finetti.core.errors import InputError, bad_argument
from finetti.core.linalg.positive_definite import at_least_floor, posdef_factor
from finetti.core.linalg.triangular import solve_lower


class DecodeCache(DecodeState):
    """A context of at most ``capacity`` keys with its factor: a plain pytree for jit and scan.

    Rows of the factor beyond ``length`` are those of an identity. `start_decoding` makes one.
    """

    module: ConditionalMean
    keys: Float[Array, "*batch C d_k"]
    factor: Double
    half_values: Double
    length: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """The largest number of keys the cache can hold."""
        return self.keys.shape[-2]

    def append(self, key: ArrayLike, value: ArrayLike) -> "DecodeCache":
        """The cache with one more key (\\*batch, d_k) and value (\\*batch, d_v).

        A full cache is refused; inside ``jit``, where the length cannot be seen, it stays as it is.
        """
        owner = "DecodeCache.append"
        key = self._token(owner, "key", self.keys, key)
        value = self._token(owner, "value", self.half_values.high, value)
        if is_concrete(self.length) and int(self.length) >= self.capacity:
            raise InputError(
                f"{owner} found the cache full: it holds {self.capacity} keys. Start with a larger "
                "capacity."
            )
        kept = self.keys, self.factor, self.half_values
        grown = self._run(_append, *kept, key, value)
        full = self.length >= self.capacity
        keys, factor, half_values = jax.tree.map(
            lambda old, new: jnp.where(full, old, new), kept, grown
        )
        length = jnp.minimum(self.length + 1, self.capacity)
        return DecodeCache(self.module, keys, factor, half_values, length)

    def read(self, query: ArrayLike) -> tuple[Float[Array, "*batch d_v"], Float[Array, "*batch"]]:
        """Posterior mean and variance of the value at ``query`` (\\*batch, d_k)."""
        query = self._token("DecodeCache.read", "query", self.keys, query)
        return self._run(_read, self.keys, self.factor, self.half_values, query)

    def _token(self, owner: str, name: str, rows: Array, token: ArrayLike) -> Array:
        shape = (*rows.shape[:-2], rows.shape[-1])
        return as_token(owner, name, token, shape, rows.dtype)

    def _run(self, step: Callable[..., Any], *operands: Any) -> Any:
        run = batched(step, self.keys.ndim - 2, len(operands), self.keys.dtype)
        return run(self.module, self.length, *operands)


def factor_prompt(
    module: ConditionalMean, keys: Array, values: Array, capacity: int
) -> DecodeCache:
    """The cache of a prompt (\\*batch, L, d_k), with room for ``capacity`` keys in all."""
    owner = "start_decoding"
    length = keys.shape[-2]
    capacity = as_whole(capacity, "capacity", owner)
    if capacity < length:
        raise bad_argument("capacity", owner, f"at least the {length} keys given", capacity)
    if module.kernel.grows:
        raise InputError(
            f"{owner} needs a kernel of bounded growth, because the scale of a cached factor "
            "cannot change. Use RBF, Matern, Linear or Polynomial, or their combinations."
        )
    room = [(0, 0)] * (keys.ndim - 2) + [(0, capacity - length), (0, 0)]
    keys, values = (jnp.pad(array, room) for array in (keys, values))
    count = jnp.asarray(length, jnp.int32)
    run = batched(_start, keys.ndim - 2, 2, keys.dtype)
    factor, half_values = run(module, count, keys, values)
    return DecodeCache(module, keys, factor, half_values, count)


def _noise(module: ConditionalMean, diagonal: Array, capacity: int, dimension: int) -> Array:
    return at_least_floor(module.ridge, diagonal, dimension, capacity)


def _start(module: ConditionalMean, length: Array, keys: Array, values: Array) -> Any:
    capacity, dimension = keys.shape
    held = jnp.arange(capacity, dtype=jnp.int32) < length
    noise = _noise(module, module.kernel.diagonal(keys), capacity, dimension)
    gram = jnp.where(held[:, None] & held[None, :], module.kernel.gram(keys), 0.0)
    factor = posdef_factor(gram + jnp.diag(jnp.where(held, noise, 1.0)))
    half_values = solve_lower(factor, values)
    return split(factor), split(half_values)


def _half(
    module: ConditionalMean, length: Array, keys: Array, factor: Array, token: Array
) -> Array:
    """g = G⁻¹K(K, token) on the keys held, 0 beyond."""
    column = module.kernel.gram(keys, token[None])
    column = jnp.where((jnp.arange(keys.shape[0], dtype=jnp.int32) < length)[:, None], column, 0.0)
    return solve_lower(factor, column)[:, 0]


def _append(
    module: ConditionalMean,
    length: Array,
    keys: Array,
    factor: Double,
    half_values: Double,
    key: Array,
    value: Array,
) -> Any:
    capacity, dimension = keys.shape
    lower, half = join(factor), join(half_values)
    row = _half(module, length, keys, lower, key)
    diagonal = module.kernel.diagonal(key[None])
    noise = _noise(module, diagonal, capacity, dimension)
    # The Schur complement is at least the noise; rounding may say less.
    pivot = jnp.sqrt(jnp.maximum(diagonal + noise - row @ row, 0.5 * noise))[0]
    new_half = (value - row @ half) / pivot
    here = jnp.arange(capacity, dtype=jnp.int32) == length
    keys = jnp.where(here[:, None], key[None, :], keys)
    lower = jnp.where(here[:, None], jnp.where(here, pivot, row)[None, :], lower)
    half = jnp.where(here[:, None], new_half[None, :], half)
    return keys, split(lower), split(half)


def _read(
    module: ConditionalMean,
    length: Array,
    keys: Array,
    factor: Double,
    half_values: Double,
    query: Array,
) -> Any:
    row = _half(module, length, keys, join(factor), query)
    variance = module.kernel.diagonal(query[None])[0] - row @ row
    return row @ join(half_values), jnp.maximum(variance, 0.0)
