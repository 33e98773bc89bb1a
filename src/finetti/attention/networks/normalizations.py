"""From scores to weights on the simplex."""

import abc

import equinox as eqx
from jaxtyping import Array, Bool, Float

from finetti.attention.networks.softmax_constants import softmax_constant
from finetti.attention.normalized import masked_softmax
from finetti.core.forms import Form


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
