"""A predictor with its checked contexts and queries, of which a defect is measured."""

from typing import Any, NamedTuple

import numpy as np

from finetti.coherence.defects.context_pairs import as_pairs
from finetti.coherence.predictors.class_labels import as_classes
from finetti.coherence.predictors.context_predictor import AlphabetPredictor, SampledPredictor
from finetti.coherence.predictors.predictor_loading import Predicts, as_predictor
from finetti.core.arguments import Letters, as_letters


class AskedContext(NamedTuple):
    """A predictor with contexts that were checked.

    Args:
        predictor: any of the three kinds.
        context: letters (B, L), or `Pairs`.
        query: (B, Q, d_k); None for letters.
        places: (B, M, d_k) of new pairs; None for letters.
    """

    predictor: Predicts
    context: Any
    query: Any = None
    places: Any = None

    @classmethod
    def of(
        cls, owner: str, predictor: Any, context: Any, query: Any = None, places: Any = None
    ) -> "AskedContext":
        """Anything that `as_predictor` takes, with contexts as `order_defect` takes them."""
        found = as_predictor(predictor)
        n_letters = getattr(found, "n_letters", None)
        if n_letters is not None:
            return cls(found, read_letters(context, n_letters, owner))
        assert not isinstance(found, AlphabetPredictor)
        if not isinstance(found, SampledPredictor) and found.categorical:
            context = _with_classes(context, owner)
        return cls(found, *as_pairs(context, query, places, owner))


def read_letters(context: Any, n_letters: int, owner: str) -> Letters:
    """Letters (L,) or (B, L) as (B, L)."""
    tokens = np.asarray(context)
    tokens = tokens[None] if tokens.ndim == 1 else tokens
    return as_letters(tokens if tokens.size else tokens.astype(int), n_letters, owner)


def _with_classes(context: Any, owner: str) -> Any:
    """The context, in which the labels of a classifier become unit vectors."""
    if not (isinstance(context, tuple) and len(context) == 2):
        return context
    keys = np.asarray(context[0])
    return keys, as_classes(context[1], keys.ndim, owner)
