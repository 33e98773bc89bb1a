"""The laws of an answer, one for each of n sequences."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.errors import UnsupportedError, bad_argument
from finetti.latent.base import Floats, as_answers, as_floats, as_generator, as_letters

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


def choose(rng: np.random.Generator, probabilities: Floats, shape: tuple[int, ...]) -> Any:
    """Letters of ``shape``, by inverting the distribution function along the last axis."""
    cumulative = np.cumsum(probabilities, axis=-1)
    # The last letter of positive probability takes what rounding leaves below 1.
    cumulative /= cumulative[..., -1:]
    return np.sum(rng.random(shape)[..., None] >= cumulative, axis=-1)


@dataclass(frozen=True, eq=False)
class Categorical:
    """Letters 0, …, c − 1 with ``probabilities`` (n, c).

    Its mean is that of the one-hot letter, which are the probabilities themselves.

    >>> law = Categorical(np.array([[0.25, 0.75]]))
    >>> float(np.exp(law.log_prob([1]))[0]), law.variance.tolist()
    (0.75, [[0.1875, 0.1875]])
    """

    probabilities: Floats

    def __post_init__(self) -> None:
        checked = as_probabilities(self.probabilities, "probabilities", "Categorical")
        if checked.ndim != 2:
            got = f"shape {checked.shape}"
            raise bad_argument("probabilities", "Categorical", "of shape (n, c)", got)
        object.__setattr__(self, "probabilities", checked)

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
        with np.errstate(divide="ignore"):
            logs = np.log(self.probabilities)
        return logs[np.arange(n), flat].reshape(letters.shape)

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
            raise UnsupportedError(
                "This Gaussian has no density: its covariance is singular, so that all of it lies "
                "on a subspace. Use `sample`, `mean` and `variance`, or fewer entries."
            ) from error


def _shape(n_samples: int | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if n_samples is None else (n_samples, *shape)
