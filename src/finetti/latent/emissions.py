"""What an atom of the latent emits: letters, vectors, or whatever a user describes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.errors import bad_argument
from finetti.core.numbers import as_positive
from finetti.latent.atoms import AtomMixture, log_of
from finetti.latent.base import Floats, as_letters, as_vectors, one_hot
from finetti.latent.laws import LOG_TWO_PI, Categorical, as_probabilities, choose


class Emission(ABC):
    """Abstract: p(x | z) for every atom z = 0, …, a − 1. Fill in all of it for one of your own.

    ``mean`` and ``variance`` (a, d) are those of the encoded token.
    """

    mean: Any
    variance: Any

    @property
    def n_atoms(self) -> int:
        """a."""
        return len(self.mean)

    @abstractmethod
    def check(self, tokens: Any, owner: str) -> Any:
        """Sequences (n, L, …) as arrays; refuse what cannot be a token."""

    @abstractmethod
    def log_prob(self, tokens: Any) -> Floats:
        """log p(x | z) of every token and atom: the shape of the tokens' axes, then a."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, atoms: Any) -> Any:
        """One token for every entry of ``atoms``."""

    @abstractmethod
    def encode(self, tokens: Any) -> Floats:
        """Tokens as vectors of the dimension d, along a last axis."""

    def mixed(self, weights: Floats) -> Any:
        """The law Σ_z w_z p(x | z) for weights (n, a)."""
        return AtomMixture(weights, self)

    @abstractmethod
    def describe(self) -> str:
        """In a few words, for the card of a world."""


@dataclass(frozen=True, eq=False)
class LetterEmission(Emission):
    """Letters from a table p(x | z) of shape (a, c).

    >>> LetterEmission([[0.9, 0.1], [0.5, 0.5]]).mixed(np.array([[0.5, 0.5]])).probabilities
    array([[0.7, 0.3]])
    """

    table: Any

    def __post_init__(self) -> None:
        table = as_probabilities(self.table, "table", "LetterEmission")
        if table.ndim != 2:
            raise bad_argument("table", "LetterEmission", "of shape (a, c)", f"shape {table.shape}")
        object.__setattr__(self, "table", table)

    @property
    def mean(self) -> Floats:
        """Of the one-hot letter: the table."""
        return self.table

    @property
    def variance(self) -> Floats:
        """p(1 − p)."""
        return self.table * (1 - self.table)

    def check(self, tokens: Any, owner: str) -> Any:
        """Letters (n, L)."""
        return as_letters(tokens, self.table.shape[1], owner)

    def log_prob(self, tokens: Any) -> Floats:
        """log of the entry of the table."""
        return log_of(self.table).T[np.asarray(tokens, np.intp)]

    def sample(self, rng: np.random.Generator, atoms: Any) -> Any:
        """A letter for every atom."""
        return choose(rng, self.table[atoms], np.shape(atoms))

    def encode(self, tokens: Any) -> Floats:
        """One-hot letters."""
        return one_hot(tokens, self.table.shape[1])

    def mixed(self, weights: Floats) -> Categorical:
        """Again letters: the table weighted by the atoms."""
        mixed = weights @ self.table
        return Categorical(mixed / mixed.sum(axis=1, keepdims=True))

    def describe(self) -> str:
        """As in: 3 letters."""
        return f"{self.table.shape[1]} letters"


@dataclass(frozen=True, eq=False)
class GaussianEmission(Emission):
    """Vectors N(m_z, v I) around a center m_z (a, d) of each atom.

    >>> law = GaussianEmission([[-1.0], [1.0]], noise_variance=0.25).mixed(np.array([[0.5, 0.5]]))
    >>> law.mean.tolist(), law.variance.tolist()
    ([[0.0]], [[1.25]])
    """

    mean: Any
    noise_variance: float

    def __post_init__(self) -> None:
        mean = as_vectors(self.mean, ("a", "d"), "mean", "GaussianEmission")
        noise = as_positive(self.noise_variance, "noise_variance", "GaussianEmission")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "noise_variance", noise)

    @property
    def variance(self) -> Floats:
        """v, in every direction."""
        return np.full(self.mean.shape, self.noise_variance)

    def check(self, tokens: Any, owner: str) -> Any:
        """Vectors (n, L, d)."""
        return as_vectors(tokens, ("n", "L", self.mean.shape[1]), "tokens", owner)

    def log_prob(self, tokens: Any) -> Floats:
        """−‖x − m_z‖²/2v, and the normalizer."""
        miss = np.asarray(tokens, np.float64)[..., None, :] - self.mean
        squares = (miss**2).sum(axis=-1) / self.noise_variance
        return -0.5 * (squares + self.mean.shape[1] * (LOG_TWO_PI + np.log(self.noise_variance)))

    def sample(self, rng: np.random.Generator, atoms: Any) -> Any:
        """A vector for every atom."""
        means = self.mean[atoms]
        return means + np.sqrt(self.noise_variance) * rng.normal(size=means.shape)

    def encode(self, tokens: Any) -> Floats:
        """The vectors themselves."""
        return np.asarray(tokens, np.float64)

    def describe(self) -> str:
        """As in: vectors N(m_z, 0.25 I) of dimension 2."""
        return f"vectors N(m_z, {self.noise_variance:g} I) of dimension {self.mean.shape[1]}"


def as_emission(value: Any, argument: str, owner: str) -> Emission:
    """An emission itself, or that of a table p(x | z)."""
    if isinstance(value, Emission):
        return value
    return LetterEmission(as_probabilities(value, argument, owner))
