"""A latent with finitely many values, what each of them emits, and any answer."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from finetti.core.arguments import Floats, as_letters, as_positive, as_vectors, one_hot
from finetti.core.checked_fields import Checked, checked
from finetti.core.errors import bad_argument
from finetti.display.card import Card
from finetti.latent.predictive_laws import (
    LOG_TWO_PI,
    AtomMixture,
    Categorical,
    as_probabilities,
    atom_posterior,
    choose,
    log_evidence,
    log_of,
    probabilities_over,
)
from finetti.latent.world import Encoded, LatentModel, WorldDraw, as_sampling, refuse_query


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


class LetterEmission(Checked, Emission, eq=False):
    """Letters from a table p(x | z) of shape (a, c).

    >>> LetterEmission([[0.9, 0.1], [0.5, 0.5]]).mixed(np.array([[0.5, 0.5]])).probabilities
    array([[0.7, 0.3]])
    """

    table: Any = checked(probabilities_over("a", "c"))

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


class GaussianEmission(Checked, Emission, eq=False):
    """Vectors N(m_z, v I) around a center m_z (a, d) of each atom.

    >>> law = GaussianEmission([[-1.0], [1.0]], noise_variance=0.25).mixed(np.array([[0.5, 0.5]]))
    >>> law.mean.tolist(), law.variance.tolist()
    ([[0.0]], [[1.25]])
    """

    mean: Any = checked(lambda value, *where: as_vectors(value, ("a", "d"), *where))
    noise_variance: float = checked(as_positive)

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


class FiniteAtoms(Checked, LatentModel, eq=False):
    """z = 0, …, a − 1 with probabilities p(z), tokens from p(x | z), an answer from p(y | z).

    p(z | X) ∝ p(z) ∏_ℓ p(x_ℓ | z)

    Args:
        prior: p(z), (a,).
        emission: p(x | z): a table (a, letters), or an `Emission` of your own.
        answers: p(y | z) likewise; by default the emission itself, so that the answer is the next
            token.

    >>> world = FiniteAtoms(prior=[0.5, 0.5], emission=[[0.9, 0.1], [0.5, 0.5]])
    >>> world.posterior(np.array([[0, 0, 0]])).probabilities.round(3)
    array([[0.854, 0.146]])

    Reference: Proposition 3.1, Lemma 3.2 and (3.1), zhang2022.
    """

    prior: Any = checked(probabilities_over("a"))
    emission: Any = checked(as_emission)
    answers: Any = checked(as_emission, None)
    name: ClassVar[str] = "finite-atoms"

    def __post_init__(self) -> None:
        super().__post_init__()
        answers = self.emission if self.answers is None else self.answers
        object.__setattr__(self, "answers", answers)
        for argument, each in (("emission", self.emission), ("answers", answers)):
            if each.n_atoms != len(self.prior):
                wanted = f"of as many atoms as the prior, {len(self.prior)}"
                raise bad_argument(argument, "FiniteAtoms", wanted, each.n_atoms)

    @property
    def answers_next_token(self) -> bool:
        """Whether the answer is the next token: no table of answers was given."""
        return self.answers is self.emission

    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """An atom for each sequence, then independent tokens and an answer."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        atoms = rng.choice(len(self.prior), size=n, p=self.prior)
        tokens = self.emission.sample(rng, np.repeat(atoms[:, None], length, axis=1))
        return WorldDraw(tokens, None, self.answers.sample(rng, atoms), atoms)

    def log_likelihood(self, tokens: Any) -> Floats:
        """Σ_ℓ log p(x_ℓ | z) of every sequence and atom, (n, a)."""
        checked = self.emission.check(tokens, "FiniteAtoms")
        return self.emission.log_prob(checked).sum(axis=1)

    def log_prob(self, tokens: Any) -> Floats:
        """log Σ_z p(z) ∏_ℓ p(x_ℓ | z)."""
        return log_evidence(self.prior, self.log_likelihood(tokens))

    def posterior(self, tokens: Any) -> Categorical:
        """p(z | X), (n, a)."""
        return atom_posterior(self.prior, self.log_likelihood(tokens), "FiniteAtoms")

    def integrate(self, posterior: Categorical, query: Any = None) -> Any:
        """Σ_z p(y | z) p(z | X)."""
        refuse_query(query, "FiniteAtoms")
        return self.answers.mixed(posterior.probabilities)

    def encode(self, draw: WorldDraw) -> Encoded:
        """Tokens and answer as their emissions encode them; the mask token is 0."""
        tokens = self.emission.encode(draw.tokens)
        mask = np.zeros((len(tokens), tokens.shape[2]))
        return Encoded(tokens, mask, self.answers.encode(draw.answer))

    def __card__(self) -> Card:
        answers: Emission = self.answers
        fields = (
            ("latent", f"one of {len(self.prior)} atoms"),
            ("tokens", self.emission.describe()),
            ("answer", "the next token" if self.answers_next_token else answers.describe()),
            ("posterior", "p(z | X) ∝ p(z) ∏ p(x | z), a sum over the atoms"),
        )
        return Card("World: finitely many atoms", fields)
