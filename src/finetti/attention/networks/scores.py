"""How a query scores a token, before normalization."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.weights import as_weights, promote


class Score(eqx.Module):
    """Score(x, z; θ_s): a number for a token x and a query z (Definition 3.1, edelman2022)."""

    @abc.abstractmethod
    def __call__(
        self, tokens: Float[Array, "*batch T d"], queries: Float[Array, "*batch Q d_z"]
    ) -> Float[Array, "*batch Q T"]:
        """All scores, one row per query."""


class BilinearScore(Score):
    """Score(x, z) = zᵀW_QW_Kᵀx, the one of Transformers (Section 3.2, edelman2022).

    Args:
        query_weights: W_Q, shape (d_z, k).
        key_weights: W_K, shape (d, k).

    >>> import jax.numpy as jnp
    >>> score = BilinearScore(jnp.eye(2), 2 * jnp.eye(2))
    >>> score(tokens=jnp.eye(2), queries=jnp.array([[1.0, 3.0]]))
    Array([[2., 6.]], dtype=float32)
    """

    query_weights: Float[Array, "d_z k"]
    key_weights: Float[Array, "d k"]

    def __init__(self, query_weights: ArrayLike, key_weights: ArrayLike):
        owner = "BilinearScore"
        self.query_weights = as_weights(
            query_weights, "query_weights", owner, "(d_z, k)", (None, None)
        )
        width = self.query_weights.shape[1]
        self.key_weights = as_weights(key_weights, "key_weights", owner, "(d, k)", (None, width))

    def __call__(
        self, tokens: Float[Array, "*batch T d"], queries: Float[Array, "*batch Q d_z"]
    ) -> Float[Array, "*batch Q T"]:
        """zᵀW_QW_Kᵀx."""
        tokens, queries, query_weights, key_weights = promote(
            tokens, queries, self.query_weights, self.key_weights
        )
        return jnp.einsum("...qk,...tk->...qt", queries @ query_weights, tokens @ key_weights)

    @property
    def matrix(self) -> Float[Array, "d_z d"]:
        """W_QK = W_QW_Kᵀ, on which alone the scores depend."""
        query_weights, key_weights = promote(self.query_weights, self.key_weights)
        return query_weights @ key_weights.T
