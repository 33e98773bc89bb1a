"""A latent with finitely many values: Bayes' rule as a sum, and answers as mixtures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from finetti.core.errors import InputError, bad_argument
from finetti.latent.base import Floats, as_generator
from finetti.latent.laws import Categorical, as_probabilities


def log_of(probabilities: Floats) -> Floats:
    """log p, and −∞ for p = 0."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def log_evidence(prior: Floats, log_likelihood: Floats) -> Floats:
    """log Σ_z p(z) p(X | z), of log-likelihoods (n, a)."""
    return np.asarray(logsumexp(log_of(prior) + log_likelihood, axis=-1))


def atom_posterior(prior: Floats, log_likelihood: Floats, owner: str) -> Categorical:
    """p(z | X) ∝ p(z) p(X | z), of log-likelihoods (n, a)."""
    evidence = log_evidence(prior, log_likelihood)
    impossible = int(np.sum(evidence == -np.inf))
    if impossible:
        raise InputError(
            f"{owner} has no posterior for {impossible} of {len(evidence)} sequences: they have "
            "probability 0 under every value of the latent. Give tokens that the world can draw."
        )
    weights = np.exp(log_of(prior) + log_likelihood - evidence[:, None])
    return Categorical(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class AtomMixture:
    """Σ_z w_z p(y | z): the law of an answer when z has finitely many values.

    Args:
        weights: p(z | X), (n, a).
        components: p(y | z) with ``log_prob(y)`` (…, n, a), ``sample(rng, atoms)``, and ``mean``
            and ``variance`` that broadcast to (n, a, d).
    """

    weights: Floats
    components: Any

    def __post_init__(self) -> None:
        checked = as_probabilities(self.weights, "weights", "AtomMixture")
        object.__setattr__(self, "weights", checked)

    @property
    def mean(self) -> Floats:
        """Σ_z w_z E[y | z], (n, d)."""
        return np.sum(self.weights[..., None] * self.components.mean, axis=1)

    @property
    def variance(self) -> Floats:
        """Σ_z w_z (Var[y | z] + (E[y | z] − E[y])²), entry by entry, (n, d)."""
        spread = self.components.variance + (self.components.mean - self.mean[:, None]) ** 2
        return np.sum(self.weights[..., None] * spread, axis=1)

    def log_prob(self, y: Any) -> Floats:
        """log Σ_z w_z p(y | z) of one answer per sequence, (…, n)."""
        logs = self.components.log_prob(y)
        if logs.shape[-2:] != self.weights.shape:
            wanted = f"one answer for each of {len(self.weights)} sequences"
            raise bad_argument("y", "AtomMixture.log_prob", wanted, f"shape {np.shape(y)}")
        return log_evidence(self.weights, logs)

    def sample(self, rng: Any, n_samples: int | None = None) -> Any:
        """One answer per sequence, (n, …); or (n_samples, n, …)."""
        rng = as_generator(rng, "AtomMixture.sample")
        return self.components.sample(rng, Categorical(self.weights).sample(rng, n_samples))
