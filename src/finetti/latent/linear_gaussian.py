"""Tokens r = zc + noise with a Gaussian matrix z: the finite-dimensional example of the paper."""

from typing import Any, ClassVar

import numpy as np

from finetti.core.arguments import Floats, as_positive, as_whole
from finetti.core.checked_fields import Checked, checked
from finetti.display.card import Card
from finetti.latent.predictive_laws import LOG_TWO_PI, Gaussian, MatrixPosterior
from finetti.latent.world import (
    LatentModel,
    Pairs,
    WorldDraw,
    as_pairs,
    as_query,
    as_sampling,
)


class LinearGaussian(Checked, LatentModel):
    """r_ℓ = z c_ℓ + ε_ℓ with z_ij ∼ N(0, τ²) and ε ∼ N(0, σ²I), (3.3) and (3.4).

    z̄(X) = RᵀC(CᵀC + λI)⁻¹ with λ = σ²/τ²,  σ̃² = σ²(1 + cᵀ(CᵀC + λI)⁻¹c)

    Args:
        key_dimension: d_c.
        value_dimension: d_r.
        noise_variance: σ².
        prior_variance: τ².

    >>> world = LinearGaussian(key_dimension=1, value_dimension=1, noise_variance=1.0)
    >>> tokens = Pairs(np.array([[[1.0], [1.0]]]), np.array([[[3.0], [0.0]]]))
    >>> law = world.predict(tokens, np.array([[2.0]]))
    >>> law.mean.round(6).tolist(), law.variance.round(6).tolist()  # z̄ = 3/3, σ̃² = 1 + 4/3
    ([[2.0]], [[2.333333]])

    Reference: (3.3)–(3.7), zhang2022; the prior variance is not λ (erratum 2).
    """

    key_dimension: int = checked(as_whole, 4)
    value_dimension: int = checked(as_whole, 3)
    noise_variance: float = checked(as_positive, 0.5)
    prior_variance: float = checked(as_positive, 1.0)
    name: ClassVar[str] = "linear-gaussian"

    @property
    def ridge(self) -> float:
        """λ = σ²/τ²: with it attention over the linear kernel is the posterior mean."""
        return self.noise_variance / self.prior_variance

    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """A matrix for each sequence, keys, and noisy values; the answer is one value more."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        shape = n, self.value_dimension, self.key_dimension
        latent = np.sqrt(self.prior_variance) * rng.normal(size=shape)
        keys = rng.normal(size=(n, length + 1, self.key_dimension))
        values = keys @ np.swapaxes(latent, 1, 2)
        values += np.sqrt(self.noise_variance) * rng.normal(size=values.shape)
        tokens = Pairs(keys[:, :-1], values[:, :-1])
        return WorldDraw(tokens, keys[:, -1], values[:, -1], latent)

    def log_prob(self, tokens: Any) -> Floats:
        """log p(R | C): columns of R are independent N(0, τ²CCᵀ + σ²I)."""
        return regression_evidence(*self._pairs(tokens), self.noise_variance, self._prior)

    def posterior(self, tokens: Any) -> MatrixPosterior:
        """N(z̄, I ⊗ σ²(CᵀC + λI)⁻¹), (3.6) with its exact covariance."""
        return regress(*self._pairs(tokens), self.noise_variance, self._prior)

    def integrate(self, posterior: MatrixPosterior, query: Any = None) -> Gaussian:
        """N(z̄c, σ̃²I), (3.7) with its exact variance."""
        place = as_query(query, len(posterior.mean), self.key_dimension, "LinearGaussian")
        mean = np.einsum("nij,nj->ni", posterior.mean, place)
        spread = np.einsum("ni,nij,nj->n", place, posterior.row_covariance, place)
        return Gaussian(mean, variance=(self.noise_variance + spread)[:, None])

    @property
    def _prior(self) -> Floats:
        return np.full(self.key_dimension, self.prior_variance)

    def _pairs(self, tokens: Any) -> Pairs:
        return as_pairs(tokens, self.key_dimension, self.value_dimension, "LinearGaussian")

    def __card__(self) -> Card:
        shape = f"{self.value_dimension} × {self.key_dimension}"
        fields = (
            ("latent", f"matrix z, {shape}, entries N(0, {self.prior_variance:g})"),
            ("tokens", f"(c, r) with r = zc + N(0, {self.noise_variance:g}), keys N(0, I)"),
            ("answer", "r at the query"),
            ("posterior", f"Gaussian; ridge λ = σ²/τ² = {self.ridge:g}"),
        )
        return Card("World: linear-Gaussian", fields)


def regress(features: Floats, values: Floats, noise: float, prior: Floats) -> MatrixPosterior:
    """p(z | Φ, R) of R = Φzᵀ + N(0, σ²), Φ (n, L, d), R (n, L, d_r), column j of z ∼ N(0, τ_j²).

    S = (ΦᵀΦ/σ² + diag(1/τ²))⁻¹,  z̄ = RᵀΦS/σ²
    """
    left, scale, right = _decomposed(features, noise, prior)
    across, shrink = np.swapaxes(right, 1, 2), scale / (1 + scale**2)
    # V diag(1/(1 + s²)) Vᵀ, without an inverse of what a small noise makes singular
    whitened = (across / (1 + scale**2)[:, None]) @ right
    if features.shape[1] < len(prior):  # directions of which no token speaks
        whitened = whitened + np.eye(len(prior)) - across @ right
    root = np.sqrt(prior)
    covariance = root[:, None] * whitened * root
    mean = np.swapaxes(values, 1, 2) @ (left * shrink[:, None]) @ right
    return MatrixPosterior(mean * root / np.sqrt(noise), covariance)


def regression_evidence(features: Floats, values: Floats, noise: float, prior: Floats) -> Floats:
    """log p(R | Φ): the columns of R are independent N(0, Φ diag(τ²) Φᵀ + σ²I)."""
    left, scale, _ = _decomposed(features, noise, prior)
    along = np.swapaxes(left, 1, 2) @ values  # (n, rank, d_r)
    rest = values - left @ along
    quadratic = (along**2 / (1 + scale**2)[:, :, None]).sum(axis=(1, 2))
    quadratic = (quadratic + (rest**2).sum(axis=(1, 2))) / noise
    log_det = np.log1p(scale**2).sum(axis=1)
    log_det = log_det + features.shape[1] * (np.log(noise) + LOG_TWO_PI)
    return -0.5 * (quadratic + values.shape[2] * log_det)


def _decomposed(features: Floats, noise: float, prior: Floats) -> tuple[Floats, Floats, Floats]:
    """U, s and Vᵀ of Φ diag(τ)/σ: what the tokens say of z, in units of what is known before."""
    return np.linalg.svd(features * np.sqrt(prior / noise), full_matrices=False)
