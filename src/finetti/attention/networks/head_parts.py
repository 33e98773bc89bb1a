"""The parts of a head: how a query scores a token, from scores to weights, maps on each token."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from finetti.attention.modules.attention_module import masked_softmax
from finetti.attention.networks.activations import Activation, as_activation
from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.attention.networks.weights import as_weights, promote
from finetti.core.forms import Form
from finetti.core.norms import spectral


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


class Normalization(eqx.Module):
    """Norm: R^T → simplex (Definition 3.1, edelman2022)."""

    @abc.abstractmethod
    def __call__(
        self, scores: Float[Array, "*lead T"], mask: Bool[Array, "*broadcast"] | None = None
    ) -> Float[Array, "*lead T"]:
        """Weights ≥ 0 that sum to 1, 0 on masked tokens."""

    @abc.abstractmethod
    def lipschitz(self, form: Form = "derived") -> float:
        """C_Norm with ‖Norm(θ) − Norm(θ')‖₁ ≤ C_Norm‖θ − θ'‖_∞ (Assumption 4.1)."""


class SoftmaxNormalization(Normalization):
    """Norm(θ) = exp(θ) / Σ exp(θ).

    >>> SoftmaxNormalization().lipschitz(), SoftmaxNormalization().lipschitz("printed")
    (1.0, 2.0)
    """

    def __call__(
        self, scores: Float[Array, "*lead T"], mask: Bool[Array, "*broadcast"] | None = None
    ) -> Float[Array, "*lead T"]:
        """softmax over the last axis; a query that may read nothing reads evenly."""
        return masked_softmax(scores, mask)

    def lipschitz(self, form: Form = "derived") -> float:
        """1, which is sharp; Corollary A.7 prints 2."""
        return softmax_constant(form)


class TokenMap(eqx.Module):
    """φ: R^d → R^k on every token, for φ_in and φ_out of a `Head`."""

    @abc.abstractmethod
    def __call__(self, tokens: Float[Array, "*lead d"]) -> Float[Array, "*lead k"]:
        """φ(x) of each token."""

    @property
    @abc.abstractmethod
    def lipschitz(self) -> Float[Array, ""]:
        """L with ‖φ(a) − φ(b)‖ ≤ L‖a − b‖."""

    @property
    @abc.abstractmethod
    def growth(self) -> Float[Array, ""]:
        """B with ‖φ(a)‖ ≤ B‖a‖."""


class LinearMap(TokenMap):
    """φ(x) = Wᵀσ(x): W_Vᵀx with the identity, W_Cᵀσ(x) otherwise (Section 3.2, edelman2022).

    Args:
        weights: W, shape (d, k).
        activation: σ, a name or an `Activation`.

    >>> import jax.numpy as jnp
    >>> phi = LinearMap(jnp.diag(jnp.array([3.0, 2.0])), "relu")
    >>> phi(jnp.array([1.0, -1.0])), float(phi.lipschitz)
    (Array([3., 0.], dtype=float32), 3.0)
    """

    weights: Float[Array, "d k"]
    activation: Activation = eqx.field(static=True)

    def __init__(self, weights: ArrayLike, activation: str | Activation = "identity"):
        self.weights = as_weights(weights, "weights", "LinearMap", "(d, k)", (None, None))
        self.activation = as_activation(activation, "LinearMap")

    def __call__(self, tokens: Float[Array, "*lead d"]) -> Float[Array, "*lead k"]:
        """Wᵀσ(x)."""
        tokens, weights = promote(tokens, self.weights)
        return self.activation(tokens) @ weights

    @property
    def lipschitz(self) -> Float[Array, ""]:
        """L_σ‖W‖."""
        return self.activation.lipschitz * spectral(self.weights)

    @property
    def growth(self) -> Float[Array, ""]:
        """L_σ‖W‖ too, because σ(0) = 0."""
        return self.lipschitz
