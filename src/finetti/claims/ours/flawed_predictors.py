"""Predictors with a planted flaw, and how often they are caught."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from finetti import latent
from finetti.coherence.predictors.context_predictor import LawSampler
from finetti.coherence.predictors.world_predictor import WorldLetters, WorldPairs

N_PATHS, N_ORDERS, N_NULL = 1500, 5, 999


class Selective(WorldLetters):
    """The exact predictive of some tokens, as if the others had not been seen."""

    def __init__(self, world: Any, seen: slice):
        super().__init__(world, 2)
        self.seen = seen

    def answer(self, tokens: Any) -> Any:
        """Predict from the tokens at these places."""
        return super().answer(tokens[:, self.seen])


class WrongVariance(WorldPairs):
    """The exact mean of a world, with a ``change`` of its variance."""

    def __init__(self, world: Any, change: Callable[[Any], Any]):
        super().__init__(world)
        self.change = change

    def answer(self, query: Any, keys: Any, values: Any, variance: bool) -> Any:
        """Return the exact mean, and the wrong variance."""
        mean, spread = super().answer(query, keys, values, variance)
        return mean, None if spread is None else self.change(spread)


def overconfident(world: Any, factor: float) -> WrongVariance:
    """All standard deviations multiplied by a factor."""
    return WrongVariance(world, lambda variance: variance * factor**2)


def noise_alone(world: Any) -> WrongVariance:
    """The noise as variance: as if the latent were known."""
    return WrongVariance(world, lambda variance: np.full(variance.shape, world.noise_variance))


def forgetful_alarms(
    forgotten: int, repeats: int, level: float, rng: np.random.Generator
) -> tuple[int, int]:
    """How often the order test refuses what forgets so many tokens, and the exact predictor.

    Each repeat is ranked among the same 999 runs of an exact predictor.
    """
    from finetti.coherence.defects.order_defect import compare_orders  # these need JAX
    from finetti.coherence.defects.sampled_moments import moment_statistic, rank_p_value

    world, context = latent.BetaBernoulli(), np.array([[1, 1, 1, 1, 0, 0, 0, 0]])
    compare = compare_orders(context, None, N_ORDERS, N_PATHS, rng)
    exact = LawSampler(WorldLetters(world, 2))
    flawed = LawSampler(Selective(world, slice(forgotten, None)))
    null = [moment_statistic(*compare(exact, rng))[0] for _ in range(N_NULL)]

    def alarms(predictor: LawSampler) -> int:
        values = (moment_statistic(*compare(predictor, rng))[0] for _ in range(repeats))
        return sum(rank_p_value(value, null) <= level for value in values)

    return alarms(flawed), alarms(exact)


def miscalibrated_alarms(factor: float, repeats: int, level: float, rng: Any) -> int:
    """How often the calibration refuses, over repeats, what is overconfident by this factor."""
    from finetti.coherence.truth_distance import distance_at  # needs JAX

    world = latent.LinearGaussian(key_dimension=3, value_dimension=3)
    predictor = overconfident(world, factor)
    seeds = rng.integers(2**31, size=repeats)
    found = [distance_at(predictor, world, 8, 200, int(seed)).p_value for seed in seeds]
    return sum(each is not None and each <= level for each in found)


def alarm_limits(repeats: int, level: float, chance: float) -> tuple[int, int]:
    """The most alarms of an exact predictor, by both tests: more have probability ≤ ``chance``.

    Ranks among one null of 999 have a Beta(10, 990) level in common; those of calibration each
    have a null of their own.
    """
    smaller = round(level * (N_NULL + 1))
    shared = scipy.stats.betabinom(repeats, smaller, N_NULL + 1 - smaller)
    return int(shared.isf(chance)), int(scipy.stats.binom(repeats, level).isf(chance))
