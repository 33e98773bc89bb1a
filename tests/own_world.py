"""A world of a user's own, in one file: tokens x = z + noise with z ∼ N(0, 1)."""

from dataclasses import dataclass

import numpy as np

from finetti.core.arguments import as_vectors
from finetti.display import Card
from finetti.latent import Encoded, Gaussian, LatentModel, WorldDraw
from finetti.latent.world import as_sampling, refuse_query


@dataclass(frozen=True)
class NormalMean(LatentModel):
    """x_ℓ ∼ N(z, noise) with z ∼ N(0, 1); the answer is the next token."""

    noise: float = 0.5
    name = "normal-mean"

    def sample(self, rng, n_sequences, context_length):
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        latent = rng.normal(size=(n, 1))
        tokens = latent[:, None] + np.sqrt(self.noise) * rng.normal(size=(n, length + 1, 1))
        return WorldDraw(tokens[:, :-1], None, tokens[:, -1], latent)

    def log_prob(self, tokens):
        # the chain rule, backwards: each token given those before it
        tokens = as_vectors(tokens, ("n", "L", 1), "tokens", "NormalMean")
        laws = [self.predict(tokens[:, :end]) for end in range(tokens.shape[1])]
        logs = [law.log_prob(tokens[:, end]) for end, law in enumerate(laws)]
        return np.sum(logs, axis=0) if logs else np.zeros(len(tokens))

    def posterior(self, tokens):
        tokens = as_vectors(tokens, ("n", "L", 1), "tokens", "NormalMean")
        precision = 1 + tokens.shape[1] / self.noise
        return Gaussian(tokens.sum(axis=1) / self.noise / precision, variance=1 / precision)

    def integrate(self, posterior, query=None):
        refuse_query(query, "NormalMean")
        return Gaussian(posterior.mean, variance=posterior.variance + self.noise)

    def encode(self, draw):
        return Encoded(draw.tokens, np.zeros((len(draw.tokens), 1)), draw.answer)

    def __card__(self):
        return Card("World: normal mean", (("latent", "z ∼ N(0, 1)"), ("posterior", "Gaussian")))
