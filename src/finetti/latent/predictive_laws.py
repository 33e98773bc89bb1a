"""Posteriors and laws of answers, one for each of n sequences."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, logsumexp, xlog1py, xlogy

from finetti.core.arguments import Floats, as_answers, as_floats, as_generator, as_letters
from finetti.core.checked_fields import Check, Checked, checked
from finetti.core.errors import InputError, UnsupportedError, bad_argument

LOG_TWO_PI = float(np.log(2 * np.pi))
SUM_TOL = 1e-9  # probabilities that sum to 1 up to rounding


def as_probabilities(values: Any, argument: str, owner: str) -> Floats:
    """Probabilities along the last axis: nonnegative, of sum 1.

    >>> as_probabilities([0.5, 0.6], "prior", "FiniteAtoms")
    Traceback (most recent call last):
    finetti.core.errors.InputError: The `prior` argument of FiniteAtoms must be nonnegative ...
    """
    array = as_floats(values, argument, owner)
    off = np.abs(array.sum(axis=-1) - 1) if array.ndim and array.shape[-1] else np.inf
    if not (np.all(off <= SUM_TOL) and np.all(array >= 0)):  # NaN is refused, too
        wanted = "nonnegative numbers of sum 1 along the last axis"
        got = array if array.size <= 8 else f"sums off by up to {np.max(off):.3g}"
        raise bad_argument(argument, owner, wanted, got)
    return array


def probabilities_over(*axes: str) -> Check:
    """The check for probabilities along the last of so many axes."""

    def check(value: Any, name: str, owner: str) -> Floats:
        array = as_probabilities(value, name, owner)
        if array.ndim != len(axes):
            shape = f"({', '.join(axes)}{',' * (len(axes) == 1)})"
            raise bad_argument(name, owner, f"of shape {shape}", f"shape {array.shape}")
        return array

    return check


def choose(rng: np.random.Generator, probabilities: Floats, shape: tuple[int, ...]) -> Any:
    """Letters of ``shape``, by inverting the distribution function along the last axis."""
    cumulative = np.cumsum(probabilities, axis=-1)
    # The last letter of positive probability takes what rounding leaves below 1.
    cumulative /= cumulative[..., -1:]
    return np.sum(rng.random(shape)[..., None] >= cumulative, axis=-1)


def log_of(probabilities: Floats) -> Floats:
    """log p, and −∞ for p = 0."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def _shape(n_samples: int | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if n_samples is None else (n_samples, *shape)


class Categorical(Checked, eq=False):
    """Letters 0, …, c − 1 with ``probabilities`` (n, c).

    Its mean is that of the one-hot letter, which are the probabilities themselves.

    >>> law = Categorical(np.array([[0.25, 0.75]]))
    >>> float(np.exp(law.log_prob([1]))[0]), law.variance.tolist()
    (0.75, [[0.1875, 0.1875]])
    """

    probabilities: Floats = checked(probabilities_over("n", "c"))

    @property
    def mean(self) -> Floats:
        """E[one-hot y | X], (n, c)."""
        return self.probabilities

    @property
    def variance(self) -> Floats:
        """p(1 − p), of every entry of the one-hot letter."""
        return self.probabilities * (1 - self.probabilities)

    def log_prob(self, y: Any) -> Floats:
        """log p(y | X) of one letter per sequence, (…, n)."""
        n, n_letters = self.probabilities.shape
        letters = as_answers(y, (n,), "y", "Categorical.log_prob")
        flat = as_letters(letters.reshape(-1, n), n_letters, "Categorical.log_prob")
        return log_of(self.probabilities)[np.arange(n), flat].reshape(letters.shape)

    def sample(self, rng: Any, n_samples: int | None = None) -> Any:
        """One letter per sequence, (n,); or (n_samples, n)."""
        shape = _shape(n_samples, (len(self.probabilities),))
        return choose(as_generator(rng, "Categorical.sample"), self.probabilities, shape)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Vectors around ``mean`` (n, d), with a variance per entry, or with a covariance (n, d, d).

    ``variance`` may be anything that broadcasts to the shape of the mean. Give one of the two.

    >>> law = Gaussian(np.zeros((1, 2)), variance=4.0)
    >>> law.variance.tolist(), round(float(law.log_prob([[0.0, 2.0]])[0]), 6)
    ([[4.0, 4.0]], -3.724171)
    """

    mean: Floats
    variance: Any = None
    covariance: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", as_floats(self.mean, "mean", "Gaussian"))
        if (self.variance is None) == (self.covariance is None):
            got = "neither" if self.variance is None else "both"
            raise bad_argument("variance", "Gaussian", "given, or else the covariance", got)
        if self.covariance is None:
            variance = np.broadcast_to(np.asarray(self.variance, np.float64), self.mean.shape)
        else:
            variance = np.diagonal(self.covariance, axis1=-2, axis2=-1)
        if not np.all(variance >= 0):
            raise bad_argument("variance", "Gaussian", "≥ 0", f"{np.min(variance)}")
        object.__setattr__(self, "variance", variance)

    def log_prob(self, y: Any) -> Floats:
        """log p(y | X) of one vector per sequence, (…, n)."""
        miss = as_answers(y, self.mean.shape, "y", "Gaussian.log_prob") - self.mean
        if self.covariance is None:
            if not np.all(self.variance > 0):
                raise _no_density("a variance is 0")
            terms = miss**2 / self.variance + np.log(self.variance) + LOG_TWO_PI
            return -0.5 * terms.sum(axis=-1)
        factor = self._factor
        white = np.linalg.solve(factor, miss[..., None])[..., 0]
        logs = 2 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        return -0.5 * ((white**2).sum(axis=-1) + logs + LOG_TWO_PI * miss.shape[-1])

    def sample(self, rng: Any, n_samples: int | None = None) -> Floats:
        """One vector per sequence, (n, d); or (n_samples, n, d)."""
        shape = _shape(n_samples, self.mean.shape)
        noise = as_generator(rng, "Gaussian.sample").normal(size=shape)
        if self.covariance is None:
            return self.mean + np.sqrt(self.variance) * noise
        # A square root that exists also where the covariance is singular.
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
        return self.mean + (root @ noise[..., None])[..., 0]

    @property
    def _factor(self) -> Floats:
        try:
            return np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError as error:
            raise _no_density("its covariance is singular") from error


def _no_density(why: str) -> UnsupportedError:
    return UnsupportedError(
        f"This Gaussian has no density: {why}, so that all of it lies on a subspace. Use `sample`, "
        "`mean` and `variance`, or fewer entries."
    )


@dataclass(frozen=True, eq=False)
class BetaPosterior:
    """z ∼ Beta(a, b), with a and b of shape (n,)."""

    alpha: Floats
    beta: Floats

    @property
    def mean(self) -> Floats:
        """a / (a + b)."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> Floats:
        """ab / ((a + b)² (a + b + 1))."""
        total = self.alpha + self.beta
        return self.alpha * self.beta / (total**2 * (total + 1))

    def log_prob(self, z: Any) -> Floats:
        """The log density at one bias per sequence, (…, n)."""
        z = as_answers(z, self.alpha.shape, "z", "BetaPosterior.log_prob")
        front = xlogy(self.alpha - 1, z) + xlog1py(self.beta - 1, -z)
        return np.where((z >= 0) & (z <= 1), front, -np.inf) - betaln(self.alpha, self.beta)

    def sample(self, rng: Any, n_samples: int | None = None) -> Floats:
        """One bias per sequence, (n,); or (n_samples, n)."""
        shape = _shape(n_samples, self.alpha.shape)
        return as_generator(rng, "BetaPosterior.sample").beta(self.alpha, self.beta, size=shape)


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

    def log_prob(self, z: Any) -> Floats:
        """The log density of one matrix per sequence, (…, n)."""
        return self.rows.log_prob(z).sum(axis=-1)

    def sample(self, rng: Any, n_samples: int | None = None) -> Floats:
        """One matrix per sequence, (n, d_r, d_c); or (n_samples, n, d_r, d_c)."""
        return self.rows.sample(rng, n_samples)


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
        weights = as_probabilities(self.weights, "weights", "AtomMixture")
        object.__setattr__(self, "weights", weights)

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
