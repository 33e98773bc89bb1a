"""Functions over letters, and what can only be sampled."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.coherence.predictors.base import (
    AlphabetPredictor,
    SampledPredictor,
    asking,
    read_only,
)
from finetti.core.arguments import Floats, Letters
from finetti.core.errors import InputError
from finetti.latent.world import Pairs


class LettersPredictor(AlphabetPredictor):
    """A function predictive(tokens (L,)) → probabilities (c,), as of a language model."""

    def __init__(
        self, predictive: Callable[..., Any], n_letters: int | None = None, name: str = ""
    ):
        self.function = predictive
        self.name = name or getattr(predictive, "__name__", type(predictive).__name__)
        if n_letters is None:
            with asking(self.name):
                found = np.asarray(predictive(np.array([0])))
            if found.ndim != 1 or not found.size:
                raise InputError(
                    f"{self.name} must answer with probabilities of shape (c,). It gave shape "
                    f"{found.shape}."
                )
            n_letters = len(found)
        self.n_letters = n_letters

    def answer(self, tokens: Letters) -> Floats:
        """One call for each context that differs from the others."""
        distinct, where = np.unique(tokens, axis=0, return_inverse=True)
        # Copies, since a function may answer in the same array each time.
        found = [np.array(self.function(each)) for each in read_only(distinct)]
        if len({each.shape for each in found}) > 1:
            shapes = sorted({str(each.shape) for each in found})
            raise InputError(f"{self.name} gave probabilities of shapes {' and '.join(shapes)}.")
        return np.array(found)[where.reshape(-1)]


class OnlyDraws(SampledPredictor):
    """An object with sample(rng, tokens), or with sample(rng, keys, values, query).

    One context at a time; letters need ``n_letters``.
    """

    def __init__(self, target: Any, n_letters: int | None = None, name: str = ""):
        self.target, self.n_letters = target, n_letters
        self.name = name or type(target).__name__

    def answer(self, rng: np.random.Generator, context: Any, query: Any, count: int) -> Any:
        """One call for each draw."""
        parts = [
            read_only(each)
            for each in ((*context, query) if isinstance(context, Pairs) else (context,))
        ]
        return np.array(
            [
                [self.target.sample(rng, *given) for given in zip(*parts, strict=True)]
                for _ in range(count)
            ]
        )
