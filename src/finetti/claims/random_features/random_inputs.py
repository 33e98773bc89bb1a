"""Inputs on the unit sphere, and what each random head contributes to a kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti import attention
from finetti.claims.measures import unit_vectors

DIMENSION, LENGTH = 4, 5


@dataclass(frozen=True)
class Inputs:
    """Pairs (x, x') of inputs: queries (P, d) and keys (P, N, d) on either side, of one norm."""

    query: np.ndarray
    keys: np.ndarray
    other_query: np.ndarray
    other_keys: np.ndarray

    def exact(self, kernel: Any) -> np.ndarray:
        """K(x, x') of each pair."""
        gram = kernel.gram(self.query, self.keys, self.other_query, self.other_keys)
        return np.diagonal(np.asarray(gram))

    def contributions(self, module: Any, draws: int) -> np.ndarray:
        """⟨φ_m(x), φ_m(x')⟩ of each draw and pair, whose mean over the draws is Φ(x)·Φ(x')."""
        shape = (len(self.query), draws, -1)
        left = np.asarray(module.features(self.query, self.keys)).reshape(shape)
        right = np.asarray(module.features(self.other_query, self.other_keys)).reshape(shape)
        return draws * np.einsum("pmj,pmj->mp", left, right)


def draw_inputs(rng: np.random.Generator, pairs: int, norm: float = 1.0) -> Inputs:
    """Independent uniform directions, d = 4 and N = 5, all tokens of one norm."""
    shapes = ((pairs,), (pairs, LENGTH)) * 2
    return Inputs(*(norm * unit_vectors(rng, *shape, DIMENSION) for shape in shapes))


def draw_contexts(
    rng: np.random.Generator, count: int, length: int, dimension: int = DIMENSION
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and a direction b, all on the unit sphere."""
    query = unit_vectors(rng, count, dimension)
    keys = unit_vectors(rng, count, length, dimension)
    return query, keys, unit_vectors(rng, dimension)


def random_heads(key: Any, draws: int, **options: Any) -> Any:
    """Random-feature attention, or with a ``context_length`` a random-feature network."""
    network = "context_length" in options
    kind = attention.RandomFeatureMLP if network else attention.RandomFeatureAttention
    return kind(key, draws, DIMENSION, **options)
