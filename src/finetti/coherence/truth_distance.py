"""The distance of a predictor to a world's exact predictive, and its calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from finetti.coherence.defects.context_pairs import value_scale
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    SampledPredictor,
)
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.coherence.predictors.world_predictor import world_predictor
from finetti.core.arguments import Floats, as_whole, one_hot
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.random_keys import generator
from finetti.core.statistics.intervals import mean_with_error, wilson_interval
from finetti.display import Card, Displayable, Table, format_interval, format_number
from finetti.latent.predictive_laws import choose
from finetti.latent.world import LatentModel

COVERAGE = 0.9
ROUNDING = 1e-10
N_NULL, N_DRAWS = 199, 200


@dataclass(frozen=True, eq=False)
class Distance:
    """The distance to the truth at one context length.

    Args:
        context_length: n.
        value: the root of the mean squared distance to the exact mean, in units of the values'
            spread; of letters the mean KL(exact ‖ predictor) in nats, or, of those that are only
            sampled, the root of the mean squared distance of the probabilities.
        interval: of the value, 95 %.
        unit: spread, nats or probability.
        n_draws: for each context, of a predictor that can only be sampled. Their noise is
            subtracted: the squared distance is unbiased, and 0 where it would be negative.
        divergence: mean KL(exact ‖ predictor) in nats of predictors with a law, and its interval.
        coverage: the share of answers inside the predictor's 90 % intervals, and its interval.
        score: mean of ((y − m)/s)², 1 for a calibrated law; of letters Brier's, Σ(1[y = x] − p)².
        p_value: how often the score of a calibrated predictor is as far off (simulated null, rank).
    """

    context_length: int
    value: float
    interval: tuple[float, float]
    unit: str
    n_draws: int | None = None
    divergence: float | None = None
    divergence_interval: tuple[float, float] | None = None
    coverage: float | None = None
    coverage_interval: tuple[float, float] | None = None
    score: float | None = None
    p_value: float | None = None

    @property
    def is_none(self) -> bool:
        """Whether nothing is left but rounding, or the noise of draws."""
        return self.value <= ROUNDING or (self.n_draws is not None and self.interval[0] <= 0)

    @property
    def text(self) -> str:
        """✓ where nothing but rounding is left; the value; or what draws leave open, as ≤ 0.01."""
        if not self.is_none:
            return format_number(self.value, 2)
        return "✓" if self.n_draws is None else f"≤ {format_number(self.interval[1], 2)}"


@dataclass(frozen=True, eq=False)
class DistanceTable(Displayable):
    """The distance to the truth against the context length."""

    name: str
    world: str
    distances: tuple[Distance, ...]

    def __card__(self) -> Card:
        unit = self.distances[0].unit
        rows = tuple(
            (
                each.context_length,
                format_interval(each.value, each.interval),
                _cell(each.divergence, each.divergence_interval),
                _cell(each.coverage, each.coverage_interval),
                each.score,
                each.p_value,
            )
            for each in self.distances
        )
        columns = ("tokens", f"distance ({unit})", "KL (nats)", "90 % intervals cover")
        columns = (*columns, "score", "p")
        return Card(f"{self.name} in the world {self.world}", tables=(Table("", columns, rows),))


def _cell(value: float | None, interval: tuple[float, float] | None) -> str | None:
    return None if value is None else format_interval(value, interval)


def distance_to_truth(
    predictor: Any,
    world: LatentModel,
    context_lengths: Sequence[int],
    n_sequences: int = 200,
    seed: int = 0,
) -> DistanceTable:
    """Measure the distance of a predictor to the exact predictive of ``world``, by context length.

    Args:
        predictor: anything that `as_predictor` takes.
        world: BetaBernoulli, FiniteAtoms over letters, LinearGaussian or GaussianProcessWorld.
        context_lengths: n.
        n_sequences: contexts with an answer, for each length.
        seed: of the contexts.

    >>> from finetti.attention import ConditionalMean
    >>> from finetti.kernels import Linear
    >>> from finetti.latent import LinearGaussian
    >>> world = LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.5)
    >>> mesa = ConditionalMean(Linear(), ridge=0.5)
    >>> [each.text for each in distance_to_truth(mesa, world, [2, 8], 20).distances]
    ['✓', '✓']
    """
    found = as_predictor(predictor)
    lengths = [as_whole(each, "context_lengths", "distance_to_truth") for each in context_lengths]
    distances = tuple(distance_at(found, world, each, n_sequences, seed) for each in lengths)
    return DistanceTable(found.name, world.name, distances)


def distance_at(
    predictor: Any, world: LatentModel, context_length: int, n_sequences: int, seed: int
) -> Distance:
    """Measure one context length of `distance_to_truth`."""
    n = as_whole(n_sequences, "n_sequences", "distance_to_truth")
    rng = generator("distance", seed, world.name, context_length)
    draw = world.sample(rng, n, context_length)
    truth = world_predictor(world)
    if isinstance(truth, AlphabetPredictor):
        exact = truth.predictive(draw.tokens)
        return _letters(predictor, draw, exact, context_length, rng)
    query = draw.query[:, None]
    exact = truth.law(query, *draw.tokens)
    assert exact is not None
    scale = float(np.sqrt(np.mean(value_scale(draw.tokens) ** 2)))
    if isinstance(predictor, SampledPredictor):
        draws = predictor.sample(rng, draw.tokens, draw.query, N_DRAWS)
        return _of_draws(draws, exact.mean[:, 0], scale, context_length, "spread")
    law = predictor.law(query, *draw.tokens)
    if law is None:
        mean = predictor.mean(query, *draw.tokens)
        return _of_squares(_squares(mean[:, 0], exact.mean[:, 0]) / scale**2, context_length)
    squares = _squares(law.mean[:, 0], exact.mean[:, 0]) / scale**2
    ratio = exact.variance / law.variance
    gap = (exact.mean - law.mean) ** 2 / law.variance
    divergence, ends = _mean_interval((ratio - 1 - np.log(ratio) + gap).sum(axis=(1, 2)) / 2)
    z = (draw.answer - law.mean[:, 0]) / np.sqrt(law.variance[:, 0])
    inside = np.abs(z) <= special.ndtri((1 + COVERAGE) / 2)
    share = wilson_interval(int(inside.sum()), inside.size)
    score = float(np.mean(z**2))
    null = rng.chisquare(z.size, size=N_NULL) / z.size  # mean z² of the exact predictor
    return replace(
        _of_squares(squares, context_length),
        divergence=divergence,
        divergence_interval=ends,
        coverage=float(inside.mean()),
        coverage_interval=(share.low, share.high),
        score=score,
        p_value=_two_sided_rank(score, null),
    )


def _letters(predictor: Any, draw: Any, exact: Floats, length: int, rng: Any) -> Distance:
    """KL, and Brier's score against what it is if the answer comes from the predictor itself."""
    if isinstance(predictor, SampledPredictor):
        drawn = predictor.sample(rng, draw.tokens, None, N_DRAWS)
        return _of_draws(one_hot(drawn, exact.shape[1]), exact, 1.0, length, "probability")
    found = predictor.predictive(draw.tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(exact > 0, exact * (np.log(exact) - np.log(found)), 0.0)
    divergence = np.maximum(terms.sum(axis=1), 0.0)

    def miss(letters: Any) -> Floats:
        return ((one_hot(letters, exact.shape[1]) - found) ** 2).sum(axis=-1).mean(axis=-1)

    drawn = choose(rng, found, (N_NULL, len(found)))
    score = float(miss(draw.answer))
    rank = _two_sided_rank(score, miss(drawn))
    return Distance(length, *_mean_interval(divergence), "nats", score=score, p_value=rank)


def _squares(mean: Floats, exact: Floats) -> Floats:
    return ((mean - exact) ** 2).sum(axis=1)


def _of_draws(draws: Floats, exact: Floats, scale: float, length: int, unit: str) -> Distance:
    """The distance of draws (N, B, d): E‖m̂ − m‖² without the variance of m̂, which is subtracted."""
    noise = draws.var(axis=0, ddof=1).sum(axis=1) / len(draws)
    squares = (_squares(draws.mean(axis=0), exact) - noise) / scale**2
    return replace(_of_squares(squares, length), unit=unit, n_draws=len(draws))


def _of_squares(squares: Floats, length: int) -> Distance:
    """The root of their mean, whose estimate may be negative where noise was subtracted."""
    value, ends = _mean_interval(squares)
    root, low, high = (float(np.sqrt(largest_of(each, 0.0))) for each in (value, *ends))
    return Distance(length, root, (low, high), "spread")


def _mean_interval(samples: Floats) -> tuple[float, tuple[float, float]]:
    """The mean, and Student's interval of it."""
    value = float(np.mean(samples))
    if len(samples) < 2 or not np.isfinite(value):
        return value, (value, value)
    error = mean_with_error(samples)[1]
    reach = -float(special.stdtrit(len(samples) - 1, 0.025)) * error
    return value, (largest_of(0.0, value - reach), float(value + reach))


def _two_sided_rank(value: float, null: Floats) -> float:
    above, below = np.sum(null >= value), np.sum(null <= value)
    return float(min(1.0, 2 * (1 + min(above, below)) / (1 + len(null))))
