"""The self-attention layer: every token is a query, positions are added, [CLS] is read."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.multihead import ConcatenatedHeads, MultiHead
from finetti.attention.networks.weights import as_sequence, as_weights, promote
from finetti.core.errors import bad_argument
from finetti.core.norms import spectral


class SelfAttention(eqx.Module):
    """Y = MHA(X; W): each token of a sequence reads all of them (Section 3.2, edelman2022).

    Args:
        heads: a `MultiHead` or `ConcatenatedHeads`.

    >>> import jax
    >>> layer = SelfAttention(MultiHead.init(jax.random.key(0), n_heads=2, dimension=8))
    >>> layer(jax.random.normal(jax.random.key(1), (3, 10, 8))).shape
    (3, 10, 8)
    """

    heads: MultiHead | ConcatenatedHeads

    def __call__(
        self, tokens: ArrayLike, mask: ArrayLike | None = None, *, is_causal: bool = False
    ) -> Float[Array, "*batch T d_out"]:
        """Y of shape (\\*batch, T, d_out); ``mask`` and ``is_causal`` as in `MultiHead`."""
        return self.heads(tokens, tokens, mask, is_causal=is_causal)

    def posterior(
        self,
        tokens: ArrayLike,
        mask: ArrayLike | None = None,
        predictive: bool = False,
        *,
        is_causal: bool = False,
    ) -> tuple[Float[Array, "*batch T d_out"], Float[Array, "*batch T d_out"]]:
        """Y and the variance of its entries, as in `MultiHead.posterior`."""
        return self.heads.posterior(tokens, tokens, mask, predictive, is_causal=is_causal)


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


class ClassToken(eqx.Module):
    """Puts the token [CLS] before a sequence (Section 3.2, edelman2022).

    Args:
        vector: x_[CLS], shape (d,), a leaf that can be trained.
    """

    vector: Float[Array, " d"]

    def __init__(self, vector: ArrayLike):
        self.vector = as_weights(vector, "vector", "ClassToken", "(d,)", (None,))

    def __call__(self, tokens: ArrayLike) -> Float[Array, "*batch tokens d"]:
        """The sequence with [CLS] as its token 0."""
        tokens = as_sequence(tokens, "tokens", "ClassToken", len(self.vector))
        tokens, vector = promote(tokens, self.vector)
        first = jnp.broadcast_to(vector, (*tokens.shape[:-2], 1, len(vector)))
        return jnp.concatenate([first, tokens], axis=-2)


class TokenReadout(eqx.Module):
    """wᵀy_[CLS], or Wᵀy of any one position: a number or a vector per sequence.

    The scalar output of paper S (Section 3.2, edelman2022), and the aggregation of paper E that
    extracts the masked position (Theorem 5.3, zhang2022).

    Args:
        weights: w, shape (d,), or W, shape (d, d_y).
        position: which token is read; 0 is where `ClassToken` puts [CLS].

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
