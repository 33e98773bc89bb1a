"""Worlds as predictors: their exact predictive laws."""

from typing import Any

import numpy as np

from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    RegressionPredictor,
    repeated,
)
from finetti.core.arguments import Floats, Letters
from finetti.core.errors import UnsupportedError
from finetti.latent.world import LatentModel, Pairs


class WorldLetters(AlphabetPredictor):
    """p(x | X) of a world of letters."""

    def __init__(self, world: Any, n_letters: int):
        self.world, self.name, self.n_letters = world, f"exact, {world.name}", n_letters

    def answer(self, tokens: Letters) -> Floats:
        """Apply Bayes' rule."""
        return self.world.predict(tokens).probabilities


class WorldPairs(RegressionPredictor):
    """p(r | X) at the query, of a world of Gaussian pairs."""

    linear, gives_variance = True, True

    def __init__(self, world: Any):
        self.world, self.name = world, f"exact, {world.name}"

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """Apply Bayes' rule."""
        n, asked, dimension = query.shape
        law = self.world.predict(repeated(Pairs(keys, values), asked), query.reshape(-1, dimension))
        shape = n, asked, values.shape[2]
        return law.mean.reshape(shape), np.asarray(law.variance).reshape(shape)


def world_predictor(world: LatentModel) -> WorldLetters | WorldPairs:
    """The exact predictive of a world of letters, or of Gaussian pairs."""
    from finetti.latent import (
        BetaBernoulli,
        FiniteAtoms,
        GaussianProcessWorld,
        LetterEmission,
        LinearGaussian,
    )

    if isinstance(world, BetaBernoulli):
        return WorldLetters(world, 2)
    if isinstance(world, FiniteAtoms) and isinstance(world.emission, LetterEmission):
        if world.answers_next_token:
            return WorldLetters(world, world.emission.table.shape[1])
        raise UnsupportedError(
            "This world of atoms answers with something else than its tokens, so that its answer "
            "cannot be appended to the context. Leave out `answers`."
        )
    if isinstance(world, LinearGaussian | GaussianProcessWorld):
        return WorldPairs(world)
    raise UnsupportedError(
        f"The answers of {type(world).__name__} are neither letters nor Gaussian. Use "
        "BetaBernoulli, FiniteAtoms with letters, LinearGaussian or GaussianProcessWorld."
    )


def has_predictive(world: LatentModel) -> bool:
    """Whether `world_predictor` takes it."""
    try:
        world_predictor(world)
    except UnsupportedError:
        return False
    return True
