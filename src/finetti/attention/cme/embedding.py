"""The empirical conditional mean embedding: one fit, any function of the value."""

from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from finetti.attention.cme.conditional_mean import ConditionalMean
from finetti.core.errors import bad_argument
from finetti.core.precision import float64
from finetti.kernels.kernel import Kernel
from finetti.kernels.linear import Linear
from finetti.kernels.rbf import RBF


class ConditionalEmbedding:
    """ĈME^λ(q) = Σ_ℓ β_ℓ(q) ℓ(v_ℓ, ·), β(q) = (K(K, K) + LλI)⁻¹K(K, q)       (A.3), zhang2022

    The minimizer of (1/L)Σ‖ℓ(v_ℓ, ·) − Ck(k_ℓ, ·)‖² + λ‖C‖²_HS over operators C (A.2). With the
    value kernel ℓ(v, v') = vᵀv' it is CME attention with ``ridge_per_token`` λ.

    Args:
        keys: k_ℓ, (L, d_k).
        values: v_ℓ, (L, d_v).
        ridge_per_token: λ.
        kernel: K; by default RBF().

    >>> keys = np.linspace(-2, 2, 200)[:, None]
    >>> embedding = ConditionalEmbedding(keys, np.sin(keys), ridge_per_token=1e-5)
    >>> embedding.expect(lambda v: v**2, [1.0]).round(3)         # E[V²|K=1] = sin(1)²
    array([0.708])
    """

    def __init__(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        ridge_per_token: float,
        kernel: Kernel | None = None,
    ):
        self.keys, self.values = np.asarray(keys, np.float64), np.asarray(values, np.float64)
        if self.keys.ndim != 2 or self.values.ndim != 2 or len(self.keys) != len(self.values):
            wanted = "of shape (L, d_v), one row for each of the keys (L, d_k)"
            got = f"shapes {self.keys.shape} and {self.values.shape}"
            raise bad_argument("values", "ConditionalEmbedding", wanted, got)
        kernel = RBF() if kernel is None else kernel
        with float64():
            self.attention = ConditionalMean(kernel, ridge_per_token=ridge_per_token)

    def weights(self, query: ArrayLike) -> np.ndarray:
        """β(q), (…, L)."""
        with float64():
            return np.asarray(self.attention.weights(np.asarray(query, np.float64), self.keys))

    def __call__(self, query: ArrayLike) -> np.ndarray:
        """Ê[V|K=q], (…, d_v): CME attention."""
        return self.expect(lambda values: values, query)

    def expect(self, function: Any, query: ArrayLike) -> np.ndarray:
        """⟨g, ĈME(q)⟩ = Σ_ℓ β_ℓ(q)g(v_ℓ), the estimate of E[g(V)|K=q]; g goes over rows."""
        return self.weights(query) @ np.asarray(function(self.values), np.float64)

    def objective(
        self, weights: ArrayLike | None = None, value_kernel: Kernel | None = None
    ) -> float:
        """(A.2) at C = Σ_ij W_ij ℓ(v_i, ·)⊗k(k_j, ·); by default at the minimizer (K + LλI)⁻¹."""
        with float64():
            gram = _gram(self.attention.kernel, self.keys)
            value_gram = _gram(Linear() if value_kernel is None else value_kernel, self.values)
            ridge = float(self.attention.ridge)
        length = len(gram)
        if weights is None:
            weights = np.linalg.inv(gram + length * ridge * np.eye(length))
        given = np.asarray(weights, np.float64)
        left = np.eye(length) - given @ gram  # ℓ(v_ℓ, ·) − Ck(k_ℓ, ·), in the span of the ℓ(v_i, ·)
        misfit = np.sum(left * (value_gram @ left)) / length
        size = np.sum((given.T @ value_gram @ given) * gram)
        return float(misfit + ridge * size)


@jax.jit
def _jitted_gram(kernel: Kernel, points: Float[Array, "L d"]) -> Float[Array, "L L"]:
    return kernel.gram(points)


def _gram(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    return np.asarray(_jitted_gram(kernel, points), np.float64)
