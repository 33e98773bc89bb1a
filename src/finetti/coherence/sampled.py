"""The defects of predictors that can only be sampled, against those of an exact one.

Two sets of draws that a coherent predictor takes from one law are compared by their moments, and
the largest difference in standard errors is the statistic. A reference that is known to be coherent
goes through the same pipeline many times, and the p-value is the rank among its statistics; without
a reference it is Bonferroni's, of normal deviates.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from finetti.coherence.defect import Defect
from finetti.coherence.orders import draw_orders, reordered
from finetti.coherence.predictors.context_predictor import SampledPredictor
from finetti.coherence.regression import appended, spread_of
from finetti.core.arguments import Floats, one_hot
from finetti.core.numbers import smallest_of
from finetti.latent.world import Pairs

# Predictor and generator → two sets of moments (N, B, comparisons, moments).
Comparison = Callable[[SampledPredictor, np.random.Generator], tuple[Floats, Floats]]


def order_of_draws(context: Any, query: Any, n_orders: int, n_paths: int, rng: Any) -> Comparison:
    """The next token after X, and after πX."""
    length = (context.keys if isinstance(context, Pairs) else context).shape[1]
    orders, _ = draw_orders(length, n_orders, rng)
    every, first = reordered(context, orders), None if query is None else query[:, 0]
    asked = None if first is None else np.repeat(first, len(orders), axis=0)

    def compare(predictor: SampledPredictor, rng: np.random.Generator) -> tuple[Floats, Floats]:
        before = _draws(predictor, rng, context, first, n_paths)[:, :, None]
        after = _draws(predictor, rng, every, asked, n_paths)
        after = after.reshape(n_paths, before.shape[1], len(orders), -1)
        return _squared(np.broadcast_to(before, after.shape)), _squared(after)

    return compare


def martingale_of_draws(context: Any, query: Any, n_paths: int) -> Comparison:
    """The next token, and the one after it at the same place."""

    def compare(predictor: SampledPredictor, rng: np.random.Generator) -> tuple[Floats, Floats]:
        here, there = (None, None) if query is None else (query[:, 0], query[:, -1])
        direct = _draws(predictor, rng, context, here, n_paths)
        _, later = _two(predictor, rng, context, there, here, n_paths)
        return _squared(direct[:, :, None]), _squared(later[:, :, None])

    return compare


def two_steps_of_draws(context: Any, query: Any, n_paths: int) -> Comparison:
    """Two tokens, and the same two in the other order."""

    def compare(predictor: SampledPredictor, rng: np.random.Generator) -> tuple[Floats, Floats]:
        here, there = (None, None) if query is None else (query[:, 0], query[:, -1])
        first, second = _two(predictor, rng, context, here, there, n_paths)
        other, again = _two(predictor, rng, context, there, here, n_paths)
        return _products(first, second), _products(again, other)

    return compare


def _draws(predictor: SampledPredictor, rng: Any, context: Any, query: Any, n: int) -> Floats:
    """n draws for every context, (n, B, d); letters are unit vectors."""
    found = predictor.sample(rng, context, query, n)
    return found if predictor.n_letters is None else one_hot(found, predictor.n_letters)


def _two(
    predictor: SampledPredictor, rng: Any, context: Any, first: Any, second: Any, n: int
) -> tuple[Floats, Floats]:
    """n times: a draw at the first place, and then one at the second; (n, B, d) each."""
    one = _draws(predictor, rng, context, first, n)
    new = np.swapaxes(one, 0, 1)
    if isinstance(context, Pairs):
        assert first is not None
        places = np.repeat(first[:, None], n, axis=1)
        longer: Any = appended(context, places, new)
        asked = np.repeat(second, n, axis=0)
    else:
        letters = new.argmax(axis=2).reshape(-1, 1)
        longer, asked = np.concatenate([np.repeat(context, n, axis=0), letters], axis=1), None
    return one, _draws(predictor, rng, longer, asked, 1)[0].reshape(new.shape).swapaxes(0, 1)


def _products(left: Floats, right: Floats) -> Floats:
    """All products of an entry of one and an entry of the other, (n, B, 1, d²)."""
    return (left[..., :, None] * right[..., None, :]).reshape(*left.shape[:2], 1, -1)


def _squared(values: Floats) -> Floats:
    return np.concatenate([values, values**2], axis=-1)


def statistic(first: Floats, second: Floats) -> tuple[float, Floats, Floats]:
    """The largest difference of moments in standard errors; differences and standard errors."""
    gap = first.mean(axis=0) - second.mean(axis=0)
    error = np.sqrt((first.var(axis=0) + second.var(axis=0)) / len(first))
    ratio = np.where(np.abs(gap) > 1e-12, np.abs(gap) / np.maximum(error, 1e-12), 0.0)
    return float(ratio.max()), np.abs(gap), error


def rank_p_value(value: float, null: Sequence[float]) -> float:
    """The share of the null, and of the value itself, that is at least as large.

    >>> rank_p_value(3.0, [1.0, 2.0, 4.0])
    0.5
    """
    return (1 + sum(each >= value for each in null)) / (1 + len(null))


def tested_draws(
    name: str,
    compare: Comparison,
    predictor: SampledPredictor,
    context: Any,
    reference: SampledPredictor | None,
    n_null: int,
    rng: np.random.Generator,
) -> Defect:
    """The defect of draws, and its rank among those of the reference."""
    largest, gap, error = statistic(*compare(predictor, rng))
    if reference is None:
        chance = smallest_of(1.0, gap.size * 2 * special.ndtr(-largest))
        how = "Bonferroni's p-value"
    else:
        null = [statistic(*compare(reference, rng))[0] for _ in range(n_null)]
        chance = rank_p_value(largest, null)
        how = f"rank among {n_null} runs of {reference.name}"
    d = gap.shape[-1] // 2 if name != "two-step" else gap.shape[-1]
    scale = spread_of(context) if isinstance(context, Pairs) else np.ones(len(context))
    power = 2 if name == "two-step" else 1
    units = (scale**power)[:, None, None]
    pairs = "squared spread" if name == "two-step" else "spread"
    sizes, errors = (gap[..., :d] / units).ravel(), (error[..., :d] / units).ravel()
    return Defect(
        name,
        sizes,
        exact=False,
        standard_error=float(errors[np.argmax(sizes)]),
        p_value=chance,
        note=f"draws; {how}",
        unit=pairs if isinstance(context, Pairs) else "probability",
    )
