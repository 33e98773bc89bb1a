"""Maps on tokens: W, positions that are added, and the read-out of one token."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.weight_arrays import as_sequence, as_weights, promote
from finetti.core.errors import bad_argument
from finetti.core.linalg.norms import spectral


class LinearMap(eqx.Module):
    """Wᵀx of every token x.

    Args:
        weights: W, shape (d, k).

    >>> import jax.numpy as jnp
    >>> LinearMap(jnp.diag(jnp.array([3.0, 2.0])))(jnp.array([1.0, -1.0]))
    Array([ 3., -2.], dtype=float32)
    """

    weights: Float[Array, "d k"]

    def __init__(self, weights: ArrayLike):
        self.weights = as_weights(weights, "weights", "LinearMap", "(d, k)", (None, None))

    def __call__(self, tokens: Float[Array, "*lead d"]) -> Float[Array, "*lead k"]:
        """Wᵀx."""
        tokens, weights = promote(tokens, self.weights)
        return tokens @ weights


class Positions(eqx.Module):
    """X + P: one vector per position (A.4, edelman2022).

    Args:
        vectors: P, shape (T, d), a leaf that can be trained.
    """

    vectors: Float[Array, "T d"]

    def __init__(self, vectors: ArrayLike):
        self.vectors = as_weights(vectors, "vectors", "Positions", "(T, d)", (None, None))

    def __call__(self, tokens: ArrayLike) -> Float[Array, "*batch T d"]:
        """X + P; X may be shorter than P."""
        tokens = as_sequence(tokens, "tokens", "Positions", self.vectors.shape[1])
        length = tokens.shape[-2]
        if length > len(self.vectors):
            requirement = f"of at most {len(self.vectors)} tokens, one per position"
            raise bad_argument("tokens", "Positions", requirement, f"{length} tokens")
        tokens, vectors = promote(tokens, self.vectors[:length])
        return tokens + jnp.broadcast_to(vectors, tokens.shape)


class TokenReadout(eqx.Module):
    """wᵀy_[CLS], or Wᵀy of any one position: a number or a vector per sequence.

    The scalar output of paper S (Section 3.2, edelman2022), and the aggregation of paper E that
    extracts the masked position (Theorem 5.3, zhang2022).

    Args:
        weights: w, shape (d,), or W, shape (d, d_y).
        position: which token is read; 0 where [CLS] is put first.

    >>> import jax.numpy as jnp
    >>> TokenReadout(jnp.array([1.0, -1.0]))(jnp.array([[5.0, 3.0], [0.0, 0.0]]))
    Array(2., dtype=float32)
    """

    weights: Float[Array, " d"] | Float[Array, "d d_y"]
    position: int = eqx.field(static=True)

    def __init__(self, weights: ArrayLike, position: int = 0):
        rank = jnp.ndim(weights)
        axes, sizes = ("(d, d_y)", (None, None)) if rank == 2 else ("(d,)", (None,))
        self.weights = as_weights(weights, "weights", "TokenReadout", axes, sizes)
        self.position = int(position)

    def __call__(self, tokens: ArrayLike) -> Float[Array, "*batch"] | Float[Array, "*batch d_y"]:
        """wᵀy at the position."""
        tokens = as_sequence(tokens, "tokens", "TokenReadout", self.weights.shape[0])
        if not -tokens.shape[-2] <= self.position < tokens.shape[-2]:
            requirement = f"long enough for position {self.position}"
            raise bad_argument("tokens", "TokenReadout", requirement, f"{tokens.shape[-2]} tokens")
        tokens, weights = promote(tokens, self.weights)
        return tokens[..., self.position, :] @ weights

    @property
    def lipschitz(self) -> Float[Array, ""]:
        """‖w‖ or ‖W‖: the output moves at most this much more than the token."""
        weights = self.weights if self.weights.ndim == 2 else self.weights[:, None]
        return spectral(weights)
