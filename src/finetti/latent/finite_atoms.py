"""A latent with finitely many values, any emission, and any answer."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from finetti.core.errors import bad_argument
from finetti.latent.atoms import atom_posterior, log_evidence
from finetti.latent.base import (
    Encoded,
    Floats,
    LatentModel,
    WorldDraw,
    as_sampling,
    refuse_query,
)
from finetti.latent.emissions import Emission, as_emission
from finetti.latent.laws import Categorical, as_probabilities
from finetti.show.card import Card


@dataclass(frozen=True, eq=False)
class FiniteAtoms(LatentModel):
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

    prior: Any
    emission: Any
    answers: Any = None
    name: ClassVar[str] = "finite-atoms"

    def __post_init__(self) -> None:
        owner = "FiniteAtoms"
        prior = as_probabilities(self.prior, "prior", owner)
        if prior.ndim != 1:
            raise bad_argument("prior", owner, "of shape (a,)", f"shape {prior.shape}")
        emission = as_emission(self.emission, "emission", owner)
        answers = emission if self.answers is None else as_emission(self.answers, "answers", owner)
        for argument, each in (("emission", emission), ("answers", answers)):
            if each.n_atoms != len(prior):
                wanted = f"of as many atoms as the prior, {len(prior)}"
                raise bad_argument(argument, owner, wanted, each.n_atoms)
        for field, value in (("prior", prior), ("emission", emission), ("answers", answers)):
            object.__setattr__(self, field, value)

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
