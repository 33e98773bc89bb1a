"""Maps φ applied to each token by itself, with the constants that Assumption 4.1 asks for."""

import abc

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.networks.activations import Activation, as_activation
from finetti.attention.networks.weights import as_weights, promote
from finetti.core.norms import spectral


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
