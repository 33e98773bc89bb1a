"""The martingale defect: how far an answer moves on average when its own next value is seen."""

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
from finetti.coherence.defects.sampled_moments import (
    N_PATHS,
    Comparison,
    compare_draws,
    draw_next,
    draw_two,
    two_moments,
)
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    RegressionPredictor,
    SampledPredictor,
    no_law,
)
from finetti.core.arguments import Floats, Letters, as_generator
from finetti.latent.world import Pairs

N_SAMPLES = 100


def martingale_defect(
    predictor: Any,
    context: Any,
    query: Any = None,
    *,
    places: Any = None,
    n_samples: int = N_SAMPLES,
    seed: Any = 0,
    n_paths: int = N_PATHS,
    reference: Any = None,
) -> Defect:
    """E[m(q; X ∪ (k', V'))] − m(q; X) with V' from the predictor's own law at the place k'.

    Exact where answers are linear in the values (then V' is its own mean), and for letters: the
    total variation between Σ_x p(x|X) p(y|X, x) and p(y|X). Otherwise a mean over draws in pairs,
    with its standard error and a test.

    Args:
        predictor, context, query, n_paths, reference: as of `order_defect`.
        places: (M, d_k) or (B, M, d_k), where the next pair is; by default at every query.
        n_samples: draws of V', where they are needed.
        seed: of all draws.

    >>> from finetti.attention import ConditionalMean
    >>> rng = np.random.default_rng(0)
    >>> keys, values, query = (rng.normal(size=shape) for shape in ((4, 2), (4, 1), (3, 2)))
    >>> martingale_defect(ConditionalMean(ridge=0.1), (keys, values), query).text
    '✓'
    >>> martingale_defect(ConditionalMean(ridge_per_token=0.1), (keys, values), query).holds()
    False
    """
    owner = "martingale_defect"
    rng = as_generator(seed, owner)
    found, context, asked, there = AskedContext.of(owner, predictor, context, query, places)
    if isinstance(found, AlphabetPredictor):
        return _of_letters(found, context)
    if isinstance(found, SampledPredictor):
        compare = _compare_next(context, asked, n_paths)
        return compare_draws("martingale", compare, found, context, reference, rng)
    return _of_pairs(found, context, asked, there, n_samples, rng)


def predict_two_letters(predictor: AlphabetPredictor, tokens: Letters) -> tuple[Floats, Floats]:
    """p(x | X), (B, c), and p(x | X) p(y | X, x), (B, c, c)."""
    first, letters = predictor.predictive(tokens), predictor.n_letters
    longer = np.repeat(tokens, letters, axis=0)
    new = np.tile(np.arange(letters), len(tokens))[:, None]
    second = predictor.predictive(np.concatenate([longer, new], axis=1))
    return first, first[:, :, None] * second.reshape(-1, letters, letters)


def _of_letters(predictor: AlphabetPredictor, tokens: Letters) -> Defect:
    """The total variation between Σ_x p(x|X) p(y|X, x) and p(y|X)."""
    first, joint = predict_two_letters(predictor, tokens)
    gaps = np.abs(joint.sum(axis=1) - first).sum(axis=1) / 2
    return Defect("martingale", gaps, exact=True, unit=TOTAL_VARIATION, rounding=predictor.rounding)


def _of_pairs(
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
    mean, variance = mean_and_variance(predictor, both, context)
    here, there = mean[:, :asked], mean[:, asked:]  # (n, Q, d), (n, M, d)
    scale = value_scale(context)[:, None, None]
    repeated_query = np.repeat(query, places.shape[1], axis=0)

    def moved(values: Floats) -> Floats:
        """m(q; X ∪ (k', v)) − m(q; X), (n, M, Q, d)."""
        after = predictor.mean(repeated_query, *append_pairs(context, places, values))
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
    size = largest_entry(mean, context.values)[:, :, None]
    if predictor.is_linear(query, *context):
        sizes = np.linalg.norm(moved(there), axis=3) / scale
        rounding = rounding_of(predictor, size / scale, sizes)
        return Defect("martingale", sizes.ravel(), exact=True, rounding=rounding)
    if not predictor.has_law:
        raise no_law(predictor.name, "continued by values of its own")
    deviation = np.sqrt(variance[:, asked:])
    # Draws in pairs m ± sε, in whose mean all that is linear cancels.
    draws = []
    for _ in range(max(2, n_samples // 2)):
        step = deviation * rng.normal(size=there.shape)
        draws.append((moved(there + step) + moved(there - step)) / 2)
    return defect_of_draws("martingale", np.array(draws), scale, predictor.rounding * size)


def _compare_next(context: Any, query: Any, n_paths: int) -> Comparison:
    """The next token, and the one after it at the same place."""

    def compare(predictor: SampledPredictor, rng: np.random.Generator) -> tuple[Floats, Floats]:
        here, there = (None, None) if query is None else (query[:, 0], query[:, -1])
        direct = draw_next(predictor, rng, context, here, n_paths)
        _, later = draw_two(predictor, rng, context, there, here, n_paths)
        return two_moments(direct[:, :, None]), two_moments(later[:, :, None])

    return compare


def one_letter_moves(predictor: AlphabetPredictor, tokens: Letters) -> float:
    """Σ_x p(x|X) times the total variation between p(·|X, x) and p(·|X), on average over X."""
    first, joint = predict_two_letters(predictor, tokens)
    return float(np.abs(joint - first[:, :, None] * first[:, None]).sum(axis=(1, 2)).mean() / 2)


def one_pair_moves(
    predictor: RegressionPredictor, context: Pairs, query: Floats, place: Floats, value: Floats
) -> float:
    """‖m(q; X ∪ (k', v')) − m(q; X)‖ of a pair (k', v') that was seen, (B, d_k) and (B, d_v).

    On average over contexts and queries, in units of the spread; of classes the total variation.
    """
    longer = append_pairs(context, place[:, None], value[:, None])
    change = predictor.mean(query, *longer) - predictor.mean(query, *context)
    if predictor.categorical:
        return float(np.abs(change).sum(axis=2).mean() / 2)
    return float((np.linalg.norm(change, axis=2) / value_scale(context)[:, None]).mean())
