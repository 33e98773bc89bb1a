"""A Gaussian matrix z seen through r = zφ + noise: Bayesian linear regression, row by row."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.latent.base import Floats
from finetti.latent.laws import LOG_TWO_PI, Gaussian


@dataclass(frozen=True, eq=False)
class MatrixPosterior:
    """z ∼ N(z̄, I ⊗ S): the rows of z are independent, each with covariance S.

    Args:
        mean: z̄(X) = E[z | X], (n, d_r, d_c).
        row_covariance: S, (n, d_c, d_c).
    """

    mean: Floats
    row_covariance: Floats

    @property
    def rows(self) -> Gaussian:
        """The rows as a law of their own, (n, d_r, d_c)."""
        return Gaussian(self.mean, covariance=self.row_covariance[:, None])

    @property
    def variance(self) -> Floats:
        """Of every entry of z, (n, d_r, d_c)."""
        diagonal = np.diagonal(self.row_covariance, axis1=1, axis2=2)
        return np.broadcast_to(diagonal[:, None], self.mean.shape)

    @property
    def covariance(self) -> Floats:
        """I ⊗ S of z read row by row, (n, d_r d_c, d_r d_c)."""
        return np.stack([np.kron(np.eye(self.mean.shape[1]), each) for each in self.row_covariance])

    def log_prob(self, z: Any) -> Floats:
        """The log density of one matrix per sequence, (…, n)."""
        return self.rows.log_prob(z).sum(axis=-1)

    def sample(self, rng: Any, n_samples: int | None = None) -> Floats:
        """One matrix per sequence, (n, d_r, d_c); or (n_samples, n, d_r, d_c)."""
        return self.rows.sample(rng, n_samples)


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
