"""The order defect: how far answers depend on the order of the context."""

from typing import Any

import numpy as np

from finetti.coherence.defects.asked_context import AskedContext
from finetti.coherence.defects.context_orders import all_letters, draw_orders, reordered
from finetti.coherence.defects.context_pairs import (
    largest_entry,
    mean_and_variance,
    rounding_of,
    value_scale,
)
from finetti.coherence.defects.defect import TOTAL_VARIATION, Defect
from finetti.coherence.defects.sampled_moments import (
    N_PATHS,
    Comparison,
    compare_draws,
    draw_next,
    two_moments,
)
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    RegressionPredictor,
    SampledPredictor,
)
from finetti.core.arguments import Floats, Letters, as_generator, as_whole
from finetti.latent.world import Pairs

N_ORDERS = 24
MAX_ENUMERATED = 4096  # contexts, all pairs of which are compared if they have the same letters


def order_defect(
    predictor: Any,
    context: Any,
    query: Any = None,
    *,
    n_orders: int = N_ORDERS,
    seed: Any = 0,
    n_paths: int = N_PATHS,
    reference: Any = None,
) -> Defect:
    """sup over orders π of ‖m(q; πX) − m(q; X)‖, in units of the values' spread.

    All orders if they are no more than ``n_orders``, else the reversed one and random ones. With a
    law both mean and standard deviation count; for letters it is the total variation between the
    probabilities.

    Args:
        predictor: anything that `as_predictor` takes.
        context: (keys, values), (L, d_k) and (L, d_v) or with an axis of contexts before them,
            where the values of a classifier are labels of any kind, or one-hot rows; or letters,
            (L,) or (B, L).
        query: (Q, d_k) or (B, Q, d_k); None for letters.
        n_orders: how many orders are tried.
        seed: of the orders, and of draws; a Generator or a seed.
        n_paths, reference: for predictors that can only be sampled, which are asked at the
            first query, and at the last where two places are needed: draws per context, a world
            (or another predictor) that is coherent, which is run 99 times.

    >>> from finetti.attention import DeltaRule, Softmax
    >>> rng = np.random.default_rng(0)
    >>> keys, values, query = (rng.normal(size=shape) for shape in ((4, 2), (4, 1), (3, 2)))
    >>> order_defect(Softmax(), (keys, values), query).text
    '✓'
    >>> order_defect(DeltaRule(), (keys, values), query).holds()
    False
    """
    owner, rng = "order_defect", as_generator(seed, "order_defect")
    n_orders = as_whole(n_orders, "n_orders", owner)
    found, context, asked, _ = AskedContext.of(owner, predictor, context, query)
    if isinstance(found, AlphabetPredictor):
        return _of_letters(found, context, n_orders, rng)
    if isinstance(found, SampledPredictor):
        compare = compare_orders(context, asked, n_orders, n_paths, rng)
        return compare_draws("order", compare, found, context, reference, rng)
    return _of_pairs(found, context, asked, n_orders, rng)


def _of_letters(
    predictor: AlphabetPredictor, tokens: Letters, n_orders: int, rng: np.random.Generator
) -> Defect:
    """The largest total variation between p(· | πX) and p(· | X).

    Over all orders where to ask about all cᴸ contexts takes no more answers than to try some.
    """
    n, length = tokens.shape
    if predictor.n_letters**length <= min(n * (n_orders + 1), MAX_ENUMERATED):
        gaps = _over_all_orders(predictor, tokens)
        return Defect("order", gaps, exact=True, unit=TOTAL_VARIATION, rounding=predictor.rounding)
    orders, complete = draw_orders(tokens.shape[1], n_orders, rng)
    orders = np.concatenate([np.arange(tokens.shape[1])[None], orders])
    found = predictor.predictive(reordered(tokens, orders))
    found = found.reshape(len(tokens), len(orders), -1)
    gaps = np.abs(found - found[:, :1]).sum(axis=2).max(axis=1) / 2
    note = "" if complete else f"the largest over {len(orders) - 1} of all orders"
    return Defect(
        "order", gaps, complete, note=note, unit=TOTAL_VARIATION, rounding=predictor.rounding
    )


def _over_all_orders(predictor: AlphabetPredictor, tokens: Letters) -> Floats:
    """Compare the answers to all contexts: those with the same letters are orders of each other."""
    every = all_letters(predictor.n_letters, tokens.shape[1])
    found = predictor.predictive(every)
    powers = predictor.n_letters ** np.arange(tokens.shape[1])[::-1]
    sets = np.sort(every, axis=1) @ powers
    gaps = np.empty(len(tokens))
    for index, context in enumerate(tokens):
        others = found[sets == np.sort(context) @ powers]
        gaps[index] = np.abs(others - found[context @ powers]).sum(axis=1).max() / 2
    return gaps


def _of_pairs(
    predictor: RegressionPredictor,
    context: Pairs,
    query: Floats,
    n_orders: int,
    rng: np.random.Generator,
) -> Defect:
    """The largest over orders π of the distance between the answers to πX and to X.

    √(‖m − m'‖² + ‖s − s'‖²): that of the laws (Wasserstein's), or of the means alone.
    """
    n, length = context.keys.shape[:2]
    orders, complete = draw_orders(length, n_orders, rng)
    orders = np.concatenate([np.arange(length)[None], orders])
    mean, variance = mean_and_variance(
        predictor, np.repeat(query, len(orders), axis=0), reordered(context, orders)
    )
    shape = n, len(orders), query.shape[1], -1
    mean, deviation = mean.reshape(shape), np.sqrt(variance).reshape(shape)
    squares = (mean - mean[:, :1]) ** 2 + (deviation - deviation[:, :1]) ** 2
    scale = np.ones((n, 1)) if predictor.categorical else value_scale(context)[:, None]
    gaps = np.sqrt(squares.sum(axis=3)).max(axis=1) / scale
    note = "" if complete else f"the largest over {len(orders) - 1} of all orders"
    rounding = rounding_of(predictor, largest_entry(mean, deviation, context.values) / scale, gaps)
    unit = "probability" if predictor.categorical else "spread"
    return Defect("order", gaps.ravel(), complete, note=note, rounding=rounding, unit=unit)


def compare_orders(context: Any, query: Any, n_orders: int, n_paths: int, rng: Any) -> Comparison:
    """The next token after X, and after πX."""
    length = (context.keys if isinstance(context, Pairs) else context).shape[1]
    orders, _ = draw_orders(length, n_orders, rng)
    every, first = reordered(context, orders), None if query is None else query[:, 0]
    asked = None if first is None else np.repeat(first, len(orders), axis=0)

    def compare(predictor: SampledPredictor, rng: np.random.Generator) -> tuple[Floats, Floats]:
        before = draw_next(predictor, rng, context, first, n_paths)[:, :, None]
        after = draw_next(predictor, rng, every, asked, n_paths)
        after = after.reshape(n_paths, before.shape[1], len(orders), -1)
        return two_moments(np.broadcast_to(before, after.shape)), two_moments(after)

    return compare
