"""Attention whose weights are positive scores divided by their sum."""

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.base import Attention
from finetti.attention.blocks import over_queries
from finetti.attention.contexts import ContextArrays, Contexts, arrange
from finetti.core.precision import float64_inside

# The mask value of jax.nn.dot_product_attention, so that fully masked queries agree with it.
_MASKED = -0.7


def masked_softmax(
    logits: Float[Array, "*rows L"], mask: Bool[Array, "*broadcast"] | None
) -> Float[Array, "*rows L"]:
    """Weights that sum to 1, 0 on masked keys, without overflow.

    A query that may read nothing spreads its weight evenly, as ``jax.nn.dot_product_attention``
    does; so does one whose scores are all zero (log −∞).
    """
    lowest = jnp.asarray(_MASKED * float(jnp.finfo(logits.dtype).max), logits.dtype)
    logits = jnp.maximum(logits, lowest)
    if mask is not None:
        logits = jnp.where(mask, logits, lowest)
    return jax.nn.softmax(logits, axis=-1)


class NormalizedAttention(Attention):
    """Norm_SM(s) = s / 1ᵀs on positive scores, given by their logarithms   (4.9), zhang2022"""

    # Whether the scores need no more than the precision of the data.
    in_data_precision: ClassVar[bool]

    @abc.abstractmethod
    def _log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        """log s(q, k_ℓ)."""

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
        return contexts.restore_values(self._read(contexts, jnp.matmul, is_causal))

    def weights(
        self,
        query: ArrayLike,
        keys: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Array, "..."]:
        """Score over sum of scores; they sum to 1."""
        contexts = arrange(type(self).__name__, query, keys, None, mask)
        return contexts.restore(self._read(contexts, _weights_alone, is_causal))

    def _read(
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

    def run(module: NormalizedAttention, arrays: ContextArrays, given: Any) -> Array:
        def rows(query: Array, keys: Array, values: Array, mask: Array | None) -> Array:
            weights = masked_softmax(module._log_scores(query, keys), mask)
            return read(weights, values, *given)

        return over_queries(rows, arrays, positions)

    return jax.jit(run if in_data_precision else float64_inside(run))
