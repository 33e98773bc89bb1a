"""Coin flips with an unknown bias, which are also the draws from a Pólya urn."""

from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln

from finetti.core.arguments import Floats, as_letters, as_positive, one_hot
from finetti.core.checked_fields import Checked, checked
from finetti.display.card import Card
from finetti.latent.predictive_laws import BetaPosterior, Categorical
from finetti.latent.world import Encoded, LatentModel, WorldDraw, as_sampling, refuse_query


class BetaBernoulli(Checked, LatentModel):
    """z ∼ Beta(α, β), and tokens 1 with probability z: an urn that gets back one ball more.

    p(x_1, …, x_L) = B(α + h, β + L − h) / B(α, β),  h = Σ x_ℓ

    Args:
        alpha: α > 0, the balls marked 1 in the urn before the first draw.
        beta: β > 0, the balls marked 0.

    >>> world = BetaBernoulli(alpha=1, beta=1)
    >>> world.predict(np.array([[1, 1, 0]])).probabilities  # Laplace's rule of succession
    array([[0.4, 0.6]])

    Reference: Proposition 3.1, zhang2022; de Finetti (1937).
    """

    alpha: float = checked(as_positive, 1.0)
    beta: float = checked(as_positive, 1.0)
    name: ClassVar[str] = "beta-bernoulli"

    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """A bias for each sequence, then independent flips; the answer is the next one."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        bias = rng.beta(self.alpha, self.beta, size=n)
        flips = (rng.random((n, length + 1)) < bias[:, None]).astype(np.intp)
        return WorldDraw(flips[:, :-1], None, flips[:, -1], bias)

    def sample_urn(self, rng: Any, n_sequences: int, context_length: int) -> Any:
        """The same law of (n, L) tokens without a latent: draw a ball, put it back with another."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        tokens = np.zeros((n, length), np.intp)
        ones = np.full(n, self.alpha)
        for position in range(length):
            share = ones / (self.alpha + self.beta + position)
            tokens[:, position] = rng.random(n) < share
            ones += tokens[:, position]
        return tokens

    def log_prob(self, tokens: Any) -> Floats:
        """log B(α + h, β + L − h) − log B(α, β)."""
        after = self.posterior(tokens)
        return betaln(after.alpha, after.beta) - betaln(self.alpha, self.beta)

    def posterior(self, tokens: Any) -> BetaPosterior:
        """Beta(α + h, β + L − h)."""
        flips = as_letters(tokens, 2, "BetaBernoulli")
        ones = flips.sum(axis=1)
        return BetaPosterior(self.alpha + ones, self.beta + flips.shape[1] - ones)

    def integrate(self, posterior: BetaPosterior, query: Any = None) -> Categorical:
        """The next flip: 1 with probability E[z | X] = (α + h) / (α + β + L)."""
        refuse_query(query, "BetaBernoulli")
        mean = posterior.mean
        return Categorical(np.stack([1 - mean, mean], axis=1))

    def encode(self, draw: WorldDraw) -> Encoded:
        """One-hot letters, (n, L, 2); the mask token is 0."""
        mask = np.zeros((len(draw.tokens), 2))
        return Encoded(one_hot(draw.tokens, 2), mask, one_hot(draw.answer, 2))

    def __card__(self) -> Card:
        fields = (
            ("latent", f"bias z ∼ Beta({self.alpha:g}, {self.beta:g})"),
            ("tokens", "0 or 1; 1 with probability z"),
            ("answer", "the next token"),
            ("posterior", "Beta(α + ones, β + zeros)"),
        )
        return Card("World: Beta–Bernoulli (Pólya urn)", fields)
