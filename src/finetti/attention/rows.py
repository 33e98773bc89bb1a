"""Attention whose weights are found row by row: one row for each query, all in one product."""

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.blocks import over_queries
from finetti.attention.context_batch import (
    ContextArrays,
    Contexts,
    arrange,
    mark_unknown,
    set_aside_spoiled,
)
from finetti.attention.modules.attention_module import Attention
from finetti.core.numerics.float64 import float64_inside


class RowAttention(Attention):
    """Abstract: the weights of a query follow from the query, the keys and its mask."""

    # Whether the weights need no more than the precision of the data.
    in_data_precision: ClassVar[bool]

    @abc.abstractmethod
    def rows(
        self,
        query: Float[Array, "Q d_k"],
        keys: Float[Array, "L d_k"],
        mask: Bool[Array, "#Q L"] | None,
    ) -> Float[Array, "Q L"]:
        """The weights, 0 on masked keys."""

    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """Σ_ℓ w_ℓ v_ℓ with the weights of `weights`."""
        contexts = arrange(type(self).__name__, query, keys, values, mask)
        return contexts.restore_values(self.read(contexts, jnp.matmul, is_causal))

    def weights(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """The weight of each key; they sum to 1."""
        contexts = arrange(type(self).__name__, query, keys, None, mask)
        return contexts.restore(self.read(contexts, _weights_alone, is_causal))

    def read(
        self, contexts: Contexts, read: Callable[..., Array], is_causal: bool, *given: Any
    ) -> Array:
        """``read(weights, values, *given)`` for every context; ``read`` is compiled once."""
        positions = contexts.positions(type(self).__name__) if is_causal else None
        if self.in_data_precision:
            contexts = contexts.at_least_float32()
        return _compiled(read, positions, self.in_data_precision)(self, contexts.arrays, given)


def _weights_alone(weights: Array, _: Array) -> Array:
    return weights


@functools.cache
def _compiled(
    read: Callable[..., Array], positions: int | None, in_data_precision: bool
) -> Callable[..., Array]:
    """One compiled function per way of reading."""

    def run(module: RowAttention, arrays: ContextArrays, given: Any) -> Array:
        def rows(query: Array, keys: Array, values: Array, mask: Array | None) -> Array:
            return read(module.rows(query, keys, mask), values, *given)

        arrays, known = set_aside_spoiled(arrays, positions)
        return mark_unknown(over_queries(rows, arrays, positions), known)

    return jax.jit(run if in_data_precision else float64_inside(run))
