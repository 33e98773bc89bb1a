"""Incremental decoding: append a key and value to a factored context in O(L²), read in O(L²).

A new key adds one row to the Cholesky factor, g = G⁻¹K(K, k) and √(K(k, k) + λ − g·g), and one row
to U = G⁻¹V; nothing before it changes.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.attention.cme.route import kernel_grows
from finetti.core.arrays import check_finite, is_concrete
from finetti.core.blocked import solve_lower
from finetti.core.errors import InputError, bad_argument
from finetti.core.precision import float64_inside, widest_float
from finetti.core.solves import at_least_floor, safe_cholesky


class Double(NamedTuple):
    """A float64 array as high + low in the precision of the data: it survives float32 programs."""

    high: Float[Array, "..."]
    low: Float[Array, "..."]


class DecodeCache(eqx.Module):
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
        key = _token(owner, "key", self.keys, key)
        value = _token(owner, "value", self.half_values.high, value)
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
        query = _token("DecodeCache.read", "query", self.keys, query)
        return self._run(_read, self.keys, self.factor, self.half_values, query)

    def _run(self, step: Callable[..., Any], *operands: Any) -> Any:
        run = _batched(step, self.keys.ndim - 2, len(operands), self.keys.dtype)
        return run(self.module, self.length, *operands)


def start_decoding(
    module: ConditionalMean, keys: ArrayLike, values: ArrayLike, capacity: int
) -> DecodeCache:
    """Factor a prompt once, with room for ``capacity`` keys in all.

    Args:
        module: CME attention with a `ridge` (not per token) and a kernel of bounded growth.
        keys: the prompt, (\\*batch, L, d_k); L may be 0.
        values: (\\*batch, L, d_v).
        capacity: at least L.

    >>> import jax.numpy as jnp
    >>> attention = ConditionalMean(ridge=0.1)
    >>> cache = start_decoding(attention, jnp.zeros((0, 2)), jnp.zeros((0, 1)), capacity=16)
    >>> cache = cache.append(jnp.zeros(2), jnp.ones(1))
    >>> mean, variance = cache.read(jnp.zeros(2))
    >>> f"{mean[0]:.3f} ± {variance**0.5:.3f}"
    '0.909 ± 0.302'
    """
    owner = "start_decoding"
    keys, values = jnp.asarray(keys), jnp.asarray(values)
    if keys.ndim < 2 or values.ndim != keys.ndim or values.shape[:-1] != keys.shape[:-1]:
        got = f"{values.shape} for keys {keys.shape}"
        raise bad_argument("values", owner, "one per key, (..., L, d_v)", got)
    length, d_k = keys.shape[-2:]
    if capacity < max(length, 1):
        raise bad_argument("capacity", owner, f"at least the {length} keys given", capacity)
    if module.per_token:
        raise InputError(
            f"{owner} cannot use `ridge_per_token`: the ridge would change with every key. Use "
            "`ridge`."
        )
    if kernel_grows(module.kernel, d_k):
        raise InputError(
            f"{owner} needs a kernel of bounded growth, because the scale of a cached factor "
            "cannot change. Use RBF, Matern, Linear or Polynomial, or their combinations."
        )
    check_finite(keys, "keys", owner)
    check_finite(values, "values", owner)
    dtype = widest_float(keys, values)
    room = [(0, 0)] * (keys.ndim - 2) + [(0, capacity - length), (0, 0)]
    keys, values = (jnp.pad(array.astype(dtype), room) for array in (keys, values))
    count = jnp.asarray(length, jnp.int32)
    factor, half_values = _batched(_start, keys.ndim - 2, 2, dtype)(module, count, keys, values)
    return DecodeCache(module, keys, factor, half_values, count)


def _token(owner: str, name: str, rows: Array, token: ArrayLike) -> Array:
    token = jnp.asarray(token)
    wanted = (*rows.shape[:-2], rows.shape[-1])
    if token.shape != wanted:
        raise bad_argument(name, owner, f"of shape {wanted}", f"shape {token.shape}")
    check_finite(token, name, owner)
    return token.astype(rows.dtype)


@functools.cache
def _batched(step: Callable[..., Any], axes: int, operands: int, dtype: Any) -> Callable[..., Any]:
    """``step(module, length, *operands)`` over the batch axes, in float64 inside, results split."""
    mapped = step
    for _ in range(axes):
        mapped = jax.vmap(mapped, in_axes=(None, None) + (0,) * operands)

    @float64_inside
    def run(*arguments: Any) -> Any:
        return mapped(*arguments)

    @jax.jit
    def call(*arguments: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            results = run(*arguments)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), results)

    return call


def _split(array: Float[Array, "..."]) -> Double:
    # reduce_precision, because XLA may drop a cast to float32 and back as excess precision.
    high = jax.lax.reduce_precision(array, exponent_bits=8, mantissa_bits=23)
    return Double(high, array - high)


def _join(double: Double) -> Float[Array, "..."]:
    return double.high + double.low


def _noise(module: ConditionalMean, diagonal: Array, capacity: int, dimension: int) -> Array:
    return at_least_floor(module.ridge, diagonal, dimension, capacity)


def _start(module: ConditionalMean, length: Array, keys: Array, values: Array) -> Any:
    capacity, dimension = keys.shape
    held = jnp.arange(capacity, dtype=jnp.int32) < length
    noise = _noise(module, module.kernel.diagonal(keys), capacity, dimension)
    gram = jnp.where(held[:, None] & held[None, :], module.kernel.gram(keys), 0.0)
    factor, _ = safe_cholesky(gram + jnp.diag(jnp.where(held, noise, 1.0)))
    half_values = solve_lower(factor, values)
    return _split(factor), _split(half_values)


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
    lower, half = _join(factor), _join(half_values)
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
    return keys, _split(lower), _split(half)


def _read(
    module: ConditionalMean,
    length: Array,
    keys: Array,
    factor: Double,
    half_values: Double,
    query: Array,
) -> Any:
    row = _half(module, length, keys, _join(factor), query)
    variance = module.kernel.diagonal(query[None])[0] - row @ row
    return row @ _join(half_values), jnp.maximum(variance, 0.0)
