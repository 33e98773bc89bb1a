"""Attention whose weights are positive scores divided by their sum."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finetti.attention.rows import RowAttention

# The mask value of jax.nn.dot_product_attention, so that fully masked queries agree with it.
_MASKED = -0.7


def masked_softmax(
    logits: Float[Array, "*rows L"], mask: Bool[Array, "*broadcast"] | None
) -> Float[Array, "*rows L"]:
    """Weights that sum to 1, 0 on masked keys, without overflow.

    A query that may read nothing spreads its weight evenly, as ``jax.nn.dot_product_attention``
    does; so does one whose scores are all zero (log −∞).
    """
    return jax.nn.softmax(masked_logits(logits, mask), axis=-1)


def masked_logits(
    logits: Float[Array, "*rows L"], mask: Bool[Array, "*broadcast"] | None
) -> Float[Array, "*rows L"]:
    """The logits, on masked keys and where they are −∞ as low as a finite number that has sums."""
    lowest = jnp.asarray(_MASKED * float(jnp.finfo(logits.dtype).max), logits.dtype)
    logits = jnp.maximum(logits, lowest)
    return logits if mask is None else jnp.where(mask, logits, lowest)


class NormalizedAttention(RowAttention):
    """Norm_SM(s) = s / 1ᵀs on positive scores, given by their logarithms   (4.9), zhang2022"""

    @abc.abstractmethod
    def _log_scores(
        self, query: Float[Array, "Q d_k"], keys: Float[Array, "L d_k"]
    ) -> Float[Array, "Q L"]:
        """log s(q, k_ℓ)."""

    def rows(
        self,
        query: Float[Array, "Q d_k"],
        keys: Float[Array, "L d_k"],
        mask: Bool[Array, "#Q L"] | None,
    ) -> Float[Array, "Q L"]:
        """Score over sum of scores; they sum to 1."""
        return masked_softmax(self._log_scores(query, keys), mask)
