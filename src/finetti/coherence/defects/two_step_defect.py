"""The two-step defect: how far two steps have another law than the same two in the other order."""

from typing import Any

import numpy as np

from finetti.coherence.defects.asked_context import AskedContext
from finetti.coherence.defects.context_pairs import (
    append_pairs,
    defect_of_draws,
    largest_entry,
    mean_and_variance,
    rounding_of,
    value_scale,
)
from finetti.coherence.defects.defect import TOTAL_VARIATION, Defect
from finetti.coherence.defects.martingale_defect import N_SAMPLES, predict_two_letters
from finetti.coherence.defects.sampled_moments import (
    N_PATHS,
    Comparison,
    compare_draws,
    draw_two,
)
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    RegressionPredictor,
    SampledPredictor,
    no_law,
)
from finetti.core.arguments import Floats, Letters, as_generator
from finetti.core.numerics.extremes import largest_of
from finetti.latent.world import Pairs


def two_step_defect(
    predictor: Any,
    context: Any,
    places: Any = None,
    *,
    n_samples: int = N_SAMPLES,
    seed: Any = 0,
    n_paths: int = N_PATHS,
    reference: Any = None,
) -> Defect:
    """p(y_1 | X) p(y_2 | X, y_1) against the other order, for predictors with a law.

    Gaussian laws with gain g(b|a) = ∂m(b; X ∪ (a, y))/∂y agree iff g(b|a)s²(a) = g(a|b)s²(b) and
    s²(b|X) = s²(b|X ∪ a) + g(b|a)²s²(a), s² including the noise. Sizes are in units of the squared
    spread; for letters they are total variations.

    Args:
        predictor, context, n_paths, reference: as of `order_defect`.
        places: (M, d_k) or (B, M, d_k): all their pairs; None for letters.
        n_samples: draws of y_1, for laws that are not linear in the values.
        seed: of all draws.

    >>> from finetti.latent import BetaBernoulli
    >>> two_step_defect(BetaBernoulli(), [0, 1, 1]).text
    '✓'
    """
    owner = "two_step_defect"
    rng = as_generator(seed, owner)
    found, context, there, _ = AskedContext.of(owner, predictor, context, places)
    if isinstance(found, AlphabetPredictor):
        return _of_letters(found, context)
    if isinstance(found, SampledPredictor):
        compare = _compare_two_steps(context, there, n_paths)
        return compare_draws("two-step", compare, found, context, reference, rng)
    return _of_pairs(found, context, there, n_samples, rng)


def _of_letters(predictor: AlphabetPredictor, tokens: Letters) -> Defect:
    """The total variation between p(x|X) p(y|X, x) and p(y|X) p(x|X, y).

    Of two letters it is the martingale defect: Σ_x p(x|X) p(1|X, x) − p(1|X) is
    p(0|X) p(1|X, 0) − p(1|X) p(0|X, 1).
    """
    joint = predict_two_letters(predictor, tokens)[1]
    gaps = np.abs(joint - np.swapaxes(joint, 1, 2)).sum(axis=(1, 2)) / 2
    return Defect("two-step", gaps, exact=True, unit=TOTAL_VARIATION, rounding=predictor.rounding)


def _of_pairs(
    predictor: RegressionPredictor,
    context: Pairs,
    places: Floats,
    n_samples: int,
    rng: np.random.Generator,
) -> Defect:
    """p(y_a | X) p(y_b | X, y_a) against the other order, for all pairs of places.

    g(b|a)s²(a) = g(a|b)s²(b)  and  s²(b|X) = s²(b|X ∪ a) + g(b|a)²s²(a), s² including the noise;
    in units of the squared spread. For laws that are not linear in the values the same moments,
    Cov(y_a, m(b|y_a)) and E[s²(b|y_a) + (m(b|y_a) − m(b))²], over draws of y_a.
    """
    if predictor.categorical:
        return _of_classes(predictor, context, places)
    n, count = places.shape[:2]
    mean, variance = mean_and_variance(predictor, places, context)
    if not predictor.has_law:  # which some targets show only in an answer
        raise no_law(predictor.name, "asked for two steps")
    deviation = np.sqrt(variance)
    scale = value_scale(context)[:, None, None] ** 2
    # Of products of a deviation and an answer.
    size = (largest_entry(deviation) * largest_entry(mean, deviation, context.values))[:, :, None]
    repeated_places = np.repeat(places, count, axis=0)

    def after(values: Floats) -> tuple[Floats, Floats]:
        """Mean and variance at b once y is seen at a, (n, a, b, d)."""
        found = mean_and_variance(
            predictor, repeated_places, Pairs(*append_pairs(context, places, values))
        )
        shape = n, count, count, -1
        return found[0].reshape(shape), found[1].reshape(shape)

    if predictor.is_linear(places, *context):
        (low, left), (high, other) = after(mean), after(mean + deviation)
        if np.allclose(left, other, rtol=largest_of(1e-9, predictor.rounding), atol=0):
            covariance = (high - low) * deviation[:, :, None]  # g(b|a)s²(a)
            swap = covariance - np.swapaxes(covariance, 1, 2)
            total = variance[:, None] - left - (high - low) ** 2
            sizes = np.maximum(np.abs(swap), np.abs(total)).max(axis=3) / scale
            rounding = rounding_of(predictor, size / scale, sizes)
            unit = "squared spread"
            return Defect("two-step", sizes.ravel(), exact=True, rounding=rounding, unit=unit)
    draws = []
    for _ in range(n_samples):
        step = deviation * rng.normal(size=mean.shape)
        later, left = after(mean + step)
        change = later - mean[:, None]
        covariance = step[:, :, None] * change
        total = left + change**2 - variance[:, None]
        draws.append(np.concatenate([covariance - np.swapaxes(covariance, 1, 2), total], axis=3))
    return defect_of_draws("two-step", np.array(draws), scale, predictor.rounding * size)


def _of_classes(predictor: RegressionPredictor, context: Pairs, places: Floats) -> Defect:
    """The total variation between p(x at a) p(y at b | x at a) and the other order."""
    n, count = places.shape[:2]
    first = predictor.mean(places, *context)
    n_classes = first.shape[2]
    asked, joint = np.repeat(places, count, axis=0), []
    for unit in np.eye(n_classes):
        values = np.broadcast_to(unit, (n, count, n_classes))
        then = predictor.mean(asked, *append_pairs(context, places, values))
        joint.append(then.reshape(n, count, count, n_classes))
    both = first[:, :, None, :, None] * np.stack(joint, axis=3)  # (n, a, b, x, y)
    gaps = np.abs(both - both.transpose(0, 2, 1, 4, 3)).sum(axis=(3, 4)) / 2
    rounding = predictor.rounding
    return Defect("two-step", gaps.ravel(), exact=True, rounding=rounding, unit=TOTAL_VARIATION)


def _compare_two_steps(context: Any, query: Any, n_paths: int) -> Comparison:
    """Two tokens, and the same two in the other order."""

    def compare(predictor: SampledPredictor, rng: np.random.Generator) -> tuple[Floats, Floats]:
        here, there = (None, None) if query is None else (query[:, 0], query[:, -1])
        first, second = draw_two(predictor, rng, context, here, there, n_paths)
        other, again = draw_two(predictor, rng, context, there, here, n_paths)
        return _products(first, second), _products(again, other)

    return compare


def _products(left: Floats, right: Floats) -> Floats:
    """All products of an entry of one and an entry of the other, (n, B, 1, d²)."""
    return (left[..., :, None] * right[..., None, :]).reshape(*left.shape[:2], 1, -1)
