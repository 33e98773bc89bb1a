"""All contexts over an alphabet, by how often each letter occurs: sup and E over X, exactly."""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy.special import gammaln

from finetti.core.errors import InputError
from finetti.core.numbers import as_whole
from finetti.latent import Encoded, FiniteAtoms, LetterEmission, WorldDraw

MAX_CONTEXTS = 100_000


@dataclass(frozen=True, eq=False)
class AlphabetContexts:
    """One context for every way to share L tokens among the letters; their order does not matter.

    Args:
        counts: how often each letter occurs, (contexts, letters).
        letters: a sequence with these counts, (contexts, L).
        log_orders: the log of how many sequences have them, (contexts,).
    """

    counts: np.ndarray
    letters: np.ndarray
    log_orders: np.ndarray

    def probabilities(self, world: Any) -> np.ndarray:
        """p(counts) under an exchangeable world of letters; they sum to 1."""
        return np.exp(self.log_orders + world.log_prob(self.letters))


def alphabet_contexts(n_letters: int, context_length: int) -> AlphabetContexts:
    """Every multiset of L letters: C(L + c − 1, c − 1) of them instead of c^L sequences.

    >>> alphabet_contexts(2, 3).counts.tolist()
    [[0, 3], [1, 2], [2, 1], [3, 0]]
    """
    letters = as_whole(n_letters, "n_letters", "alphabet_contexts")
    length = as_whole(context_length, "context_length", "alphabet_contexts")
    count = comb(length + letters - 1, letters - 1)
    if count > MAX_CONTEXTS:
        raise InputError(
            f"{letters} letters and {length} tokens have {count} different contexts, and at most "
            f"{MAX_CONTEXTS} are enumerated. Take a shorter context or fewer letters."
        )
    # Bars between stars: where the c − 1 bars stand among L + c − 1 places.
    places = np.array(list(combinations(range(length + letters - 1), letters - 1)), dtype=int)
    bars = np.hstack(
        [
            np.full((count, 1), -1),
            places.reshape(count, -1),
            np.full((count, 1), length + letters - 1),
        ]
    )
    counts = np.diff(bars, axis=1) - 1
    sequences = np.stack([np.repeat(np.arange(letters), row) for row in counts])
    log_orders = gammaln(length + 1) - gammaln(counts + 1).sum(axis=1)
    return AlphabetContexts(counts, sequences, log_orders)


def letter_world(world: Any, owner: str) -> np.ndarray:
    """The table p(x | z) of a `FiniteAtoms` world of letters; anything else is refused."""
    if not isinstance(world, FiniteAtoms) or not isinstance(world.emission, LetterEmission):
        raise InputError(
            f"{owner} enumerates contexts, which needs a FiniteAtoms world whose tokens are "
            f"letters. Got {type(world).__name__} instead."
        )
    return np.asarray(world.emission.table)


def encode_contexts(world: FiniteAtoms, contexts: AlphabetContexts) -> Encoded:
    """What a network reads of every context; the targets are E[y|X]."""
    sample = world.sample(0, len(contexts.letters), 1)
    draw = WorldDraw(contexts.letters, None, sample.answer, sample.latent)
    return world.encode(draw)._replace(target=world.predict(contexts.letters).mean)
