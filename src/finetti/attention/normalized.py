"""Attention whose weights are positive scores divided by their sum."""

import abc
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.base import Attention
from finetti.attention.contexts import Contexts, arrange

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
        contexts = contexts.causal(type(self).__name__) if is_causal else contexts
        return contexts.restore_values(self._over(contexts, jnp.matmul))

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
        contexts = contexts.causal(type(self).__name__) if is_causal else contexts
        return contexts.restore(self._over(contexts, lambda weights, _: weights))

    @abc.abstractmethod
    def _over(self, contexts: Contexts, read: Callable[[Array, Array], Array]) -> Array:
        """``read(weights, values)`` for every context, in the precision that the scores need."""

    def _normalized(
        self,
        query: Float[Array, "Q d_k"],
        keys: Float[Array, "L d_k"],
        mask: Bool[Array, "L"] | None,
    ) -> Float[Array, "Q L"]:
        logits = self._log_scores(query, keys)
        return masked_softmax(logits, None if mask is None else mask[None, :])
