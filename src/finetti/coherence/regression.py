"""The defects of predictors that read pairs."""

from typing import Any

import numpy as np
from scipy import special

from finetti.coherence.defect import TOTAL_VARIATION, Defect
from finetti.coherence.orders import draw_orders, reordered
from finetti.coherence.predictors.context_predictor import RegressionPredictor, no_law
from finetti.core.arguments import Floats
from finetti.core.numbers import largest_of, smallest_of
from finetti.latent.world import Pairs


def spread_of(context: Pairs) -> Floats:
    """√(mean ‖v − v̄‖²) of the values of each context, (B,); what defects are measured in."""
    values = context.values
    if not values.shape[1]:
        return np.ones(len(values))
    center = values.mean(axis=1, keepdims=True)
    spread = np.sqrt(((values - center) ** 2).sum(axis=2).mean(axis=1))
    size = np.abs(values).max(axis=(1, 2))
    return np.where(spread > 1e-12 * size, spread, np.where(size > 0, size, 1.0))


def order_of_pairs(
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
    mean, variance = _asked(
        predictor, np.repeat(query, len(orders), axis=0), reordered(context, orders)
    )
    shape = n, len(orders), query.shape[1], -1
    mean, deviation = mean.reshape(shape), np.sqrt(variance).reshape(shape)
    squares = (mean - mean[:, :1]) ** 2 + (deviation - deviation[:, :1]) ** 2
    scale = np.ones((n, 1)) if predictor.categorical else spread_of(context)[:, None]
    gaps = np.sqrt(squares.sum(axis=3)).max(axis=1) / scale
    note = "" if complete else f"the largest over {len(orders) - 1} of all orders"
    rounding = _rounding(predictor, _largest(mean, deviation, context.values) / scale, gaps)
    unit = "probability" if predictor.categorical else "spread"
    return Defect("order", gaps.ravel(), complete, note=note, rounding=rounding, unit=unit)


def martingale_of_pairs(
    predictor: RegressionPredictor,
    context: Pairs,
    query: Floats,
    places: Floats,
    n_samples: int,
    rng: np.random.Generator,
) -> Defect:
    """E[m(q; X ∪ (k', V'))] − m(q; X), V' from the predictor's own law at k'.

    Where answers are linear in the values the expectation is the answer to X ∪ (k', m(k'; X)).
    """
    n, asked = query.shape[:2]
    both = np.concatenate([query, places], axis=1)
    mean, variance = _asked(predictor, both, context)
    here, there = mean[:, :asked], mean[:, asked:]  # (n, Q, d), (n, M, d)
    scale = spread_of(context)[:, None, None]
    repeated_query = np.repeat(query, places.shape[1], axis=0)

    def moved(values: Floats) -> Floats:
        """m(q; X ∪ (k', v)) − m(q; X), (n, M, Q, d)."""
        after = predictor.mean(repeated_query, *appended(context, places, values))
        return after.reshape(n, -1, *here.shape[1:]) - here[:, None]

    if predictor.categorical:
        n_classes = there.shape[2]
        units = np.broadcast_to(np.eye(n_classes)[:, None, None], (n_classes, *there.shape))
        change = sum(
            there[:, :, each, None, None] * moved(units[each]) for each in range(n_classes)
        )
        sizes = np.abs(change).sum(axis=3).ravel() / 2
        rounding = predictor.rounding
        return Defect("martingale", sizes, exact=True, rounding=rounding, unit=TOTAL_VARIATION)
    size = _largest(mean, context.values)[:, :, None]
    if predictor.is_linear(query, *context):
        sizes = np.linalg.norm(moved(there), axis=3) / scale
        rounding = _rounding(predictor, size / scale, sizes)
        return Defect("martingale", sizes.ravel(), exact=True, rounding=rounding)
    if not predictor.has_law:
        raise no_law(predictor.name, "continued by values of its own")
    deviation = np.sqrt(variance[:, asked:])
    # Draws in pairs m ± sε, in whose mean all that is linear cancels.
    draws = []
    for _ in range(max(2, n_samples // 2)):
        step = deviation * rng.normal(size=there.shape)
        draws.append((moved(there + step) + moved(there - step)) / 2)
    return _tested("martingale", np.array(draws), scale, predictor.rounding * size)


def two_steps_of_pairs(
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
        return _two_steps_of_classes(predictor, context, places)
    n, count = places.shape[:2]
    mean, variance = _asked(predictor, places, context)
    if not predictor.has_law:  # which some targets show only in an answer
        raise no_law(predictor.name, "asked for two steps")
    deviation = np.sqrt(variance)
    scale = spread_of(context)[:, None, None] ** 2
    # Of products of a deviation and an answer.
    size = (_largest(deviation) * _largest(mean, deviation, context.values))[:, :, None]
    repeated_places = np.repeat(places, count, axis=0)

    def after(values: Floats) -> tuple[Floats, Floats]:
        """Mean and variance at b once y is seen at a, (n, a, b, d)."""
        found = _asked(predictor, repeated_places, Pairs(*appended(context, places, values)))
        shape = n, count, count, -1
        return found[0].reshape(shape), found[1].reshape(shape)

    if predictor.is_linear(places, *context):
        (low, left), (high, other) = after(mean), after(mean + deviation)
        if np.allclose(left, other, rtol=largest_of(1e-9, predictor.rounding), atol=0):
            covariance = (high - low) * deviation[:, :, None]  # g(b|a)s²(a)
            swap = covariance - np.swapaxes(covariance, 1, 2)
            total = variance[:, None] - left - (high - low) ** 2
            sizes = np.maximum(np.abs(swap), np.abs(total)).max(axis=3) / scale
            rounding = _rounding(predictor, size / scale, sizes)
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
    return _tested("two-step", np.array(draws), scale, predictor.rounding * size)


def _two_steps_of_classes(predictor: RegressionPredictor, context: Pairs, places: Floats) -> Defect:
    """The total variation between p(x at a) p(y at b | x at a) and the other order."""
    n, count = places.shape[:2]
    first = predictor.mean(places, *context)
    n_classes = first.shape[2]
    asked, joint = np.repeat(places, count, axis=0), []
    for unit in np.eye(n_classes):
        values = np.broadcast_to(unit, (n, count, n_classes))
        then = predictor.mean(asked, *appended(context, places, values))
        joint.append(then.reshape(n, count, count, n_classes))
    both = first[:, :, None, :, None] * np.stack(joint, axis=3)  # (n, a, b, x, y)
    gaps = np.abs(both - both.transpose(0, 2, 1, 4, 3)).sum(axis=(3, 4)) / 2
    rounding = predictor.rounding
    return Defect("two-step", gaps.ravel(), exact=True, rounding=rounding, unit=TOTAL_VARIATION)


def one_pair_moves(
    predictor: RegressionPredictor, context: Pairs, query: Floats, place: Floats, value: Floats
) -> float:
    """‖m(q; X ∪ (k', v')) − m(q; X)‖ of a pair (k', v') that was seen, (B, d_k) and (B, d_v).

    On average over contexts and queries, in units of the spread; of classes the total variation.
    """
    longer = appended(context, place[:, None], value[:, None])
    change = predictor.mean(query, *longer) - predictor.mean(query, *context)
    if predictor.categorical:
        return float(np.abs(change).sum(axis=2).mean() / 2)
    return float((np.linalg.norm(change, axis=2) / spread_of(context)[:, None]).mean())


def appended(context: Pairs, places: Floats, values: Floats) -> Pairs:
    """X ∪ (k', v) for every place (B, M, d_k) and its value (B, M, d_v), (B·M, L + 1, …)."""
    parts = []
    for part, new in zip(context, (places, values), strict=True):
        old = np.repeat(part[:, None], new.shape[1], axis=1)
        joined = np.concatenate([old, new[:, :, None]], axis=2)
        parts.append(joined.reshape(-1, *joined.shape[2:]))
    return Pairs(*parts)


def _asked(predictor: RegressionPredictor, query: Floats, context: Pairs) -> tuple[Floats, Floats]:
    """Mean and variance; zeros for the variance of a predictor that has none."""
    law = predictor.law(query, *context)
    if law is not None:
        return law.mean, law.variance
    mean = predictor.mean(query, *context)
    return mean, np.zeros_like(mean)


def _largest(*parts: Floats) -> Floats:
    """The largest entry of each context in any of its parts, (n, 1)."""
    flat = np.concatenate([each.reshape(len(each), -1) for each in parts], axis=1)
    return np.abs(flat).max(axis=1, keepdims=True)


def _rounding(predictor: RegressionPredictor, relative: Floats, sizes: Floats) -> Floats:
    """What rounding may leave of sizes, whose answers are ``relative`` to their unit; flat."""
    return np.broadcast_to(predictor.rounding * relative, sizes.shape).ravel()


def _tested(name: str, draws: Floats, scale: Floats, rounding: Floats) -> Defect:
    """Sizes of the means over draws (S, n, M, Q, d), and Student's test of all entries at once."""
    mean, error = draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
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


def as_context(context: Any, query: Any, places: Any, owner: str) -> tuple[Pairs, Floats, Floats]:
    """Keys (B, L, d_k), values (B, L, d_v), queries (B, Q, d_k), places (B, M, d_k).

    One context may come without its axis B, and values of dimension 1 without theirs.
    """
    from finetti.core.arguments import as_vectors
    from finetti.core.errors import bad_argument

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
