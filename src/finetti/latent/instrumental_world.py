"""Instruments, inputs and outcomes, with hidden causes that move both: linear and Gaussian."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from finetti.core.arguments import Floats, as_answers, as_generator, as_positive, as_vectors
from finetti.core.checked_fields import Checked, checked
from finetti.core.errors import bad_argument
from finetti.display.card import Card
from finetti.latent.linear_gaussian import regress, regression_evidence
from finetti.latent.predictive_laws import LOG_TWO_PI, Gaussian, MatrixPosterior
from finetti.latent.world import (
    LatentModel,
    Pairs,
    WorldDraw,
    as_pairs,
    as_query,
    as_sampling,
)

RANK_TOL = 1e-8  # of the smallest singular value of Π to the largest


def _as_first_stage(value: Any, name: str, owner: str) -> Floats:
    """Π, of full row rank."""
    stage = as_vectors(value, ("d_x", "d_z"), name, owner)
    singular = np.linalg.svd(stage, compute_uv=False)
    inputs, instruments = stage.shape
    few = instruments < inputs or not stage.size
    if few or singular.min() <= RANK_TOL * singular.max():
        got = f"{instruments} instruments for {inputs} inputs" if few else "a lower rank"
        advice = (
            "Without relevance P(x | z) does not tell the inputs apart, and their effects "
            "cannot be found."
        )
        raise bad_argument(name, owner, "of full row rank", got, advice)
    return stage


@dataclass(frozen=True, eq=False)
class StructuralLaw:
    """x ∼ N(x̂, sI), then y ∼ N(w̄ᵀφ, σ² + φᵀSφ) with φ = (x, x − x̂): the law of (x, y), (n, d + 1).

    Not Gaussian, because the unknown effect multiplies the unknown x; all of it is exact.
    """

    expected: Floats  # x̂ = Πz, (n, d)
    coefficients: MatrixPosterior  # (β, κ) in one row, (n, 1, 2d)
    input_variance: float
    noise_variance: float

    @property
    def mean(self) -> Floats:
        """(x̂, β̄ᵀx̂): E[y | z] = E[g(x) | z], (B.3)."""
        effect = self.coefficients.mean[:, 0, : self.expected.shape[1]]
        outcome = (effect * self.expected).sum(axis=1, keepdims=True)
        return np.concatenate([self.expected, outcome], axis=1)

    @property
    def variance(self) -> Floats:
        """Of x and of y, entry by entry."""
        n, d = self.expected.shape
        middle = np.concatenate([self.expected, np.zeros((n, d))], axis=1)
        both = np.concatenate([np.eye(d), np.eye(d)])  # what u = x − x̂ adds to φ
        weights, covariance = self.coefficients.mean[:, 0] @ both, self.coefficients.row_covariance
        known = np.einsum("ni,nij,nj->n", middle, covariance, middle)
        spread = np.trace(both.T @ covariance @ both, axis1=1, axis2=2)
        moved = self.input_variance * (spread + (weights**2).sum(axis=1))
        outcome = self.noise_variance + known + moved
        inputs = np.full((n, d), self.input_variance)
        return np.concatenate([inputs, outcome[:, None]], axis=1)

    def log_prob(self, y: Any) -> Floats:
        """log p(x | z) + log p(y | x, z, X) of one (x, y) per sequence, (…, n)."""
        n, d = self.expected.shape
        pairs = as_answers(y, (n, d + 1), "y", "StructuralLaw.log_prob")
        inputs = Gaussian(self.expected, variance=self.input_variance).log_prob(pairs[..., :-1])
        mean, variance = self._outcome(pairs[..., :-1])
        squares = (pairs[..., -1] - mean) ** 2 / variance
        return inputs - 0.5 * (squares + np.log(variance) + LOG_TWO_PI)

    def sample(self, rng: Any, n_samples: int | None = None) -> Floats:
        """One (x, y) per sequence, (n, d + 1); or (n_samples, n, d + 1)."""
        rng = as_generator(rng, "StructuralLaw.sample")
        inputs = Gaussian(self.expected, variance=self.input_variance).sample(rng, n_samples)
        mean, variance = self._outcome(inputs)
        outcome = mean + np.sqrt(variance) * rng.normal(size=mean.shape)
        return np.concatenate([inputs, outcome[..., None]], axis=-1)

    def _outcome(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of y given x, (…, n)."""
        features = np.concatenate([inputs, inputs - self.expected], axis=-1)
        mean = (features * self.coefficients.mean[:, 0]).sum(axis=-1)
        covariance = self.coefficients.row_covariance
        spread = np.einsum("...ni,nij,...nj->...n", features, covariance, features)
        return mean, self.noise_variance + spread


class InstrumentalWorld(Checked, LatentModel, eq=False):
    """x = Πz + u and y = βᵀx + κᵀu + e: the instrument z moves x, and the hidden u moves both.

    E[y | z] = E[g(x) | z] with g(x) = βᵀx, although E[y | x] ≠ g(x)                      (B.3)

    Tokens are Pairs: the key is the instrument z ∼ N(0, I), the value (x, y). The latent of a
    sequence is (β, κ), the effect and the confounding, as one row (n, 1, 2d). Given z, the noise
    ε = κᵀu + e has mean 0 (exclusion); Π has full rank (relevance), without which β and κ cannot be
    told apart however long the context.

    Args:
        first_stage: Π, (d inputs, at least as many instruments).
        input_variance: of every entry of u.
        noise_variance: of e.
        effect_variance: of the prior β ∼ N(0, ·).
        confounding_variance: of the prior κ ∼ N(0, ·).

    >>> world = InstrumentalWorld()
    >>> draw = world.sample(0, n_sequences=1, context_length=5000)
    >>> effect, confounding = draw.latent[0, 0]
    >>> found = world.structural(draw.tokens, np.ones((1, 1)))  # g(1) = β
    >>> bool(abs(found.mean[0, 0] - effect) < 4 * np.sqrt(found.variance[0, 0]) < 0.1)
    True

    Reference: Assumption B.1 and (B.3), zhang2022.
    """

    first_stage: Any = checked(_as_first_stage, ((1.0, 0.5),))
    input_variance: float = checked(as_positive, 1.0)
    noise_variance: float = checked(as_positive, 0.25)
    effect_variance: float = checked(as_positive, 1.0)
    confounding_variance: float = checked(as_positive, 1.0)
    name: ClassVar[str] = "instrumental"

    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """β and κ for each sequence, then instruments, inputs and outcomes."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        inputs, instruments = self.first_stage.shape
        latent = np.sqrt(self._prior) * rng.normal(size=(n, 1, 2 * inputs))
        keys = rng.normal(size=(n, length + 1, instruments))
        hidden = np.sqrt(self.input_variance) * rng.normal(size=(n, length + 1, inputs))
        moved = keys @ self.first_stage.T + hidden
        outcome = np.concatenate([moved, hidden], axis=2) @ np.swapaxes(latent, 1, 2)
        outcome += np.sqrt(self.noise_variance) * rng.normal(size=outcome.shape)
        values = np.concatenate([moved, outcome], axis=2)
        return WorldDraw(Pairs(keys[:, :-1], values[:, :-1]), keys[:, -1], values[:, -1], latent)

    def log_prob(self, tokens: Any) -> Floats:
        """Σ_ℓ log p(x_ℓ | z_ℓ) + log p(y_1, …, y_L | x, z)."""
        features, outcome = self._regression(tokens)
        hidden = features[:, :, self.first_stage.shape[0] :]
        inputs = Gaussian(np.zeros(hidden.shape), variance=self.input_variance).log_prob(hidden)
        evidence = regression_evidence(features, outcome, self.noise_variance, self._prior)
        return inputs.sum(axis=1) + evidence

    def posterior(self, tokens: Any) -> MatrixPosterior:
        """(β, κ) given the tokens: the regression of y on (x, x − Πz)."""
        return regress(*self._regression(tokens), self.noise_variance, self._prior)

    def integrate(self, posterior: MatrixPosterior, query: Any = None) -> StructuralLaw:
        """The law of (x, y) at an instrument."""
        instruments = self.first_stage.shape[1]
        place = as_query(query, len(posterior.mean), instruments, "InstrumentalWorld")
        expected = place @ self.first_stage.T
        return StructuralLaw(expected, posterior, self.input_variance, self.noise_variance)

    def structural(self, tokens: Any, inputs: Any) -> Gaussian:
        """g(x) = βᵀx given the tokens, for inputs (n, d) that are set from outside."""
        posterior, d = self.posterior(tokens), self.first_stage.shape[0]
        points = as_vectors(inputs, (len(posterior.mean), d), "inputs", "structural")
        mean = (posterior.mean[:, 0, :d] * points).sum(axis=1)
        covariance = posterior.row_covariance[:, :d, :d]
        spread = np.einsum("ni,nij,nj->n", points, covariance, points)
        return Gaussian(mean[:, None], variance=spread[:, None])

    def least_squares_limit(self, latent: Any) -> Floats:
        """What regressing y on x alone tends to, (n, d): β + (ΠΠᵀ + sI)⁻¹ s κ, not β.

        For instruments of unit covariance, as `sample` draws them.
        """
        d = self.first_stage.shape[0]
        effect, confounding = latent[:, 0, :d], latent[:, 0, d:]
        second = self.first_stage @ self.first_stage.T + self.input_variance * np.eye(d)
        return effect + np.linalg.solve(second, self.input_variance * confounding.T).T

    @property
    def _prior(self) -> Floats:
        d = self.first_stage.shape[0]
        return np.repeat([self.effect_variance, self.confounding_variance], d)

    def _regression(self, tokens: Any) -> tuple[Floats, Floats]:
        """(x, x − Πz) and y."""
        inputs, instruments = self.first_stage.shape
        keys, values = as_pairs(tokens, instruments, inputs + 1, "InstrumentalWorld")
        moved = values[:, :, :-1]
        hidden = moved - keys @ self.first_stage.T
        return np.concatenate([moved, hidden], axis=2), values[:, :, -1:]

    def __card__(self) -> Card:
        inputs, instruments = self.first_stage.shape
        fields = (
            ("latent", f"effect β and confounding κ of {inputs} input(s)"),
            ("tokens", f"{instruments} instrument(s) z; x = Πz + u and y = βᵀx + κᵀu + e"),
            ("answer", "(x, y) at an instrument"),
            ("posterior", "Gaussian: the regression of y on (x, x − Πz)"),
        )
        return Card("World: instruments", fields)
