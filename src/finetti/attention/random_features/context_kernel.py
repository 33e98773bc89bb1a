"""Kernels between two inputs of attention, each a query with its keys."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.context_batch import arrange, map_blocks
from finetti.core.arrays import as_array
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.float64 import widest_float


class Input(NamedTuple):
    """x_{0:N}: a query, its keys, and the share 1/N of each key (0 on masked ones)."""

    query: Float[Array, "*batch d"]
    keys: Float[Array, "*batch N d"]
    share: Float[Array, "*batch N"]


class ContextKernel(eqx.Module):
    """K(x, x') of two inputs x = (x₀, x_{1:N}): the limit of a random-feature model.

    ``gram`` takes batches, a call takes one input on each side. The numbers of keys may differ
    unless a member says otherwise. A masked key counts as deleted; an input with no key left has
    K = 0. Computed in the precision of the tokens; first derivatives are finite everywhere.
    """

    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        other_query: ArrayLike,
        other_keys: ArrayLike,
        mask: ArrayLike | None = None,
        other_mask: ArrayLike | None = None,
    ) -> Float[Array, ""]:
        """K of two inputs: queries (d,), keys (N, d), masks (N,)."""
        owner = type(self).__name__
        x = self._input(owner, 0, "", query, keys, mask)
        y = self._input(owner, 0, "other_", other_query, other_keys, other_mask)
        x, y = jax.tree.map(lambda array: array[None], _same_dtype(x, y))
        return _gram(self, x, y)[0, 0]

    def gram(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        other_query: ArrayLike | None = None,
        other_keys: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        other_mask: ArrayLike | None = None,
    ) -> Float[Array, "B C"]:
        """K of every pair: queries (B, d) and (C, d), keys (B, N, d) and (C, N', d).

        Without the others: among the inputs themselves, and exactly symmetric.
        """
        owner = f"{type(self).__name__}.gram"
        x = self._input(owner, 1, "", query, keys, mask)
        if other_query is None and other_keys is None:
            if other_mask is not None:
                raise bad_argument("other_mask", owner, "given with other_keys", "it alone")
            return _symmetric(_gram(self, x, x))
        if other_query is None or other_keys is None:
            raise InputError(f"{owner} takes `other_query` and `other_keys` together, or neither.")
        y = self._input(owner, 1, "other_", other_query, other_keys, other_mask)
        return _gram(self, *_same_dtype(x, y))

    @abc.abstractmethod
    def _value(self, x: Input, y: Input) -> Float[Array, ""]:
        """K of two inputs without batch axes, of one dtype."""

    @abc.abstractmethod
    def _check(self, owner: str, prefix: str, keys: Array, mask: Any) -> None:
        """Refuse keys or masks that this kernel cannot take."""

    def _input(
        self, owner: str, n_batch: int, prefix: str, query: Any, keys: Any, mask: Any
    ) -> Input:
        query, keys = as_array(query), as_array(keys)
        for name, array, rank, last in (
            (f"{prefix}query", query, n_batch + 1, "d"),
            (f"{prefix}keys", keys, n_batch + 2, "N, d"),
        ):
            if array.ndim != rank:
                shape = f"({'B, ' * n_batch}{last}{',' if rank == 1 else ''})"
                raise bad_argument(name, owner, f"of shape {shape}", f"shape {array.shape}")
        contexts = arrange(owner, query, keys, None, mask)
        self._check(owner, prefix, keys, mask)
        arrays, dtype, lead = contexts.arrays, contexts.layout.dtype, keys.shape[:-1]
        if arrays.mask is None:
            share = jnp.full(lead, 1 / keys.shape[-2], dtype)
        else:
            read = arrays.mask.astype(dtype)
            share = (read / jnp.maximum(jnp.sum(read, axis=-1, keepdims=True), 1)).reshape(lead)
        return Input(query.astype(dtype), arrays.keys.astype(dtype).reshape(keys.shape), share)


def _same_dtype(x: Input, y: Input) -> tuple[Input, Input]:
    dtype = widest_float(x.query, y.query)
    x, y = jax.tree.map(lambda array: array.astype(dtype), (x, y))
    return x, y


@jax.jit
def _symmetric(gram: Float[Array, "B B"]) -> Float[Array, "B B"]:
    return (gram + gram.T) / 2


@jax.jit
def _gram(kernel: ContextKernel, xs: Input, ys: Input) -> Float[Array, "B C"]:
    pairs = ys.share.size * xs.share.shape[1]  # key pairs in a row of the Gram matrix

    def row(x: Input) -> Float[Array, " C"]:
        return map_blocks(lambda y: kernel._value(x, y), ys, pairs // len(ys.query))

    return map_blocks(row, xs, pairs)
