"""Contexts of pairs: how they are read, extended, asked about, and measured."""

from typing import Any

import numpy as np
from scipy import special

from finetti.coherence.defects.defect import Defect
from finetti.coherence.predictors.context_predictor import RegressionPredictor
from finetti.core.arguments import Floats, as_vectors
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import smallest_of
from finetti.core.statistics.intervals import mean_with_error
from finetti.latent.world import Pairs


def as_pairs(context: Any, query: Any, places: Any, owner: str) -> tuple[Pairs, Floats, Floats]:
    """Keys (B, L, d_k), values (B, L, d_v), queries (B, Q, d_k), places (B, M, d_k).

    One context may come without its axis B, and values of dimension 1 without theirs.
    """
    if not isinstance(context, tuple) or len(context) != 2:
        wanted = "a pair (keys, values), or letters for a predictor of letters"
        raise bad_argument("context", owner, wanted, type(context).__name__)
    if query is None:
        wanted = "places (B, Q, d_k) to ask about, or (Q, d_k) for one context"
        raise bad_argument("query", owner, wanted, None)
    keys, values, query = (np.asarray(each, np.float64) for each in (*context, query))
    places = query if places is None else np.asarray(places, np.float64)
    if keys.ndim == 2:
        values = values[:, None] if values.ndim == 1 else values
        keys, values = keys[None], values[None]
        query, places = (each[None] if each.ndim == 2 else each for each in (query, places))
    elif values.ndim == 2:
        values = values[:, :, None]
    keys = as_vectors(keys, ("B", "L", "d_k"), "keys", owner)
    shape = keys.shape
    values = as_vectors(values, (shape[0], shape[1], "d_v"), "values", owner)
    query = as_vectors(query, (shape[0], "Q", shape[2]), "query", owner)
    places = as_vectors(places, (shape[0], "M", shape[2]), "places", owner)
    return Pairs(keys, values), query, places


def value_scale(context: Pairs) -> Floats:
    """√(mean ‖v − v̄‖²) of the values of each context, (B,); what defects are measured in."""
    values = context.values
    if not values.shape[1]:
        return np.ones(len(values))
    center = values.mean(axis=1, keepdims=True)
    spread = np.sqrt(((values - center) ** 2).sum(axis=2).mean(axis=1))
    size = np.abs(values).max(axis=(1, 2))
    return np.where(spread > 1e-12 * size, spread, np.where(size > 0, size, 1.0))


def append_pairs(context: Pairs, places: Floats, values: Floats) -> Pairs:
    """X ∪ (k', v) for every place (B, M, d_k) and its value (B, M, d_v), (B·M, L + 1, …)."""
    parts = []
    for part, new in zip(context, (places, values), strict=True):
        old = np.repeat(part[:, None], new.shape[1], axis=1)
        joined = np.concatenate([old, new[:, :, None]], axis=2)
        parts.append(joined.reshape(-1, *joined.shape[2:]))
    return Pairs(*parts)


def mean_and_variance(
    predictor: RegressionPredictor, query: Floats, context: Pairs
) -> tuple[Floats, Floats]:
    """Mean and variance; zeros for the variance of a predictor that has none."""
    law = predictor.law(query, *context)
    if law is not None:
        return law.mean, law.variance
    mean = predictor.mean(query, *context)
    return mean, np.zeros_like(mean)


def largest_entry(*parts: Floats) -> Floats:
    """The largest entry of each context in any of its parts, (n, 1)."""
    flat = np.concatenate([each.reshape(len(each), -1) for each in parts], axis=1)
    return np.abs(flat).max(axis=1, keepdims=True)


def rounding_of(predictor: RegressionPredictor, relative: Floats, sizes: Floats) -> Floats:
    """Bound the rounding error of sizes, whose answers are ``relative`` to their unit; flat."""
    return np.broadcast_to(predictor.rounding * relative, sizes.shape).ravel()


def defect_of_draws(name: str, draws: Floats, scale: Floats, rounding: Floats) -> Defect:
    """Sizes of the means over draws (S, n, M, Q, d), and Student's test of all entries at once."""
    mean, error = mean_with_error(draws)
    sizes = np.linalg.norm(mean, axis=3) / scale
    errors = np.linalg.norm(error, axis=3) / scale
    tiny = np.maximum(1e-12 * scale, rounding)[..., None]  # rounding is no evidence
    ratio = np.where(np.abs(mean) > tiny, np.abs(mean) / np.maximum(error, tiny), 0.0).max()
    chance = 2 * special.stdtr(len(draws) - 1, -ratio)
    return Defect(
        name,
        sizes.ravel(),
        exact=False,
        standard_error=float(errors.ravel()[np.argmax(sizes)]),
        p_value=smallest_of(1.0, mean.size * chance),
        note=f"mean over {len(draws)} draws",
        unit="squared spread" if name == "two-step" else "spread",
    )
