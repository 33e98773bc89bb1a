"""The three defects, and that of whole sequences, for any predictor."""

from typing import Any

import numpy as np

from finetti.coherence.alphabets import (
    martingale_of_letters,
    order_of_letters,
    sequence_of_letters,
    two_steps_of_letters,
)
from finetti.coherence.defect import Defect
from finetti.coherence.predictors.class_labels import as_classes
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    DrawsOf,
    RegressionPredictor,
    SampledPredictor,
)
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.coherence.regression import (
    as_context,
    martingale_of_pairs,
    order_of_pairs,
    two_steps_of_pairs,
)
from finetti.coherence.sampled import (
    Comparison,
    martingale_of_draws,
    order_of_draws,
    tested_draws,
    two_steps_of_draws,
)
from finetti.core.arguments import Letters, as_generator, as_letters
from finetti.core.errors import UnsupportedError, bad_argument
from finetti.core.numbers import as_whole

N_ORDERS, N_SAMPLES, N_PATHS, N_NULL = 24, 100, 1000, 99


def order_defect(
    predictor: Any,
    context: Any,
    query: Any = None,
    *,
    n_orders: int = N_ORDERS,
    seed: Any = 0,
    n_paths: int = N_PATHS,
    reference: Any = None,
    n_null: int = N_NULL,
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
        n_paths, reference, n_null: for predictors that can only be sampled, which are asked at the
            first query, and at the last where two places are needed: draws per context, a world
            (or another predictor) that is coherent, and how often it is run.

    >>> from finetti.attention import DeltaRule, Softmax
    >>> rng = np.random.default_rng(0)
    >>> keys, values, query = (rng.normal(size=shape) for shape in ((4, 2), (4, 1), (3, 2)))
    >>> order_defect(Softmax(), (keys, values), query).text
    '✓'
    >>> order_defect(DeltaRule(), (keys, values), query).holds()
    False
    """
    owner, found, rng = "order_defect", as_predictor(predictor), as_generator(seed, "order_defect")
    n_orders = as_whole(n_orders, "n_orders", owner)
    if isinstance(found, AlphabetPredictor):
        return order_of_letters(found, _letters(found, context, owner), n_orders, rng)
    if isinstance(found, SampledPredictor):
        context, query = _sampled_context(found, context, query, owner)
        compare = order_of_draws(context, query, n_orders, n_paths, rng)
        return _of_draws("order", found, compare, context, reference, n_null, rng)
    pairs, asked, _ = as_context(_classes(found, context, owner), query, None, owner)
    return order_of_pairs(found, pairs, asked, n_orders, rng)


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
    n_null: int = N_NULL,
) -> Defect:
    """E[m(q; X ∪ (k', V'))] − m(q; X) with V' from the predictor's own law at the place k'.

    Exact where answers are linear in the values (then V' is its own mean), and for letters: the
    total variation between Σ_x p(x|X) p(y|X, x) and p(y|X). Otherwise a mean over draws in pairs,
    with its standard error and a test.

    Args:
        predictor, context, query, n_paths, reference, n_null: as of `order_defect`.
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
    owner, found = "martingale_defect", as_predictor(predictor)
    rng = as_generator(seed, owner)
    if isinstance(found, AlphabetPredictor):
        return martingale_of_letters(found, _letters(found, context, owner))
    if isinstance(found, SampledPredictor):
        context, query = _sampled_context(found, context, query, owner)
        compare = martingale_of_draws(context, query, n_paths)
        return _of_draws("martingale", found, compare, context, reference, n_null, rng)
    pairs, asked, there = as_context(_classes(found, context, owner), query, places, owner)
    return martingale_of_pairs(found, pairs, asked, there, n_samples, rng)


def two_step_defect(
    predictor: Any,
    context: Any,
    places: Any = None,
    *,
    n_samples: int = N_SAMPLES,
    seed: Any = 0,
    n_paths: int = N_PATHS,
    reference: Any = None,
    n_null: int = N_NULL,
) -> Defect:
    """p(y_1 | X) p(y_2 | X, y_1) against the other order, for predictors with a law.

    Gaussian laws with gain g(b|a) = ∂m(b; X ∪ (a, y))/∂y agree iff g(b|a)s²(a) = g(a|b)s²(b) and
    s²(b|X) = s²(b|X ∪ a) + g(b|a)²s²(a), s² including the noise. Sizes are in units of the squared
    spread; for letters they are total variations.

    Args:
        predictor, context, n_paths, reference, n_null: as of `order_defect`.
        places: (M, d_k) or (B, M, d_k): all their pairs; None for letters.
        n_samples: draws of y_1, for laws that are not linear in the values.
        seed: of all draws.

    >>> from finetti.latent import BetaBernoulli
    >>> two_step_defect(BetaBernoulli(), [0, 1, 1]).text
    '✓'
    """
    owner, found = "two_step_defect", as_predictor(predictor)
    rng = as_generator(seed, owner)
    if isinstance(found, AlphabetPredictor):
        return two_steps_of_letters(found, _letters(found, context, owner))
    if isinstance(found, SampledPredictor):
        context, places = _sampled_context(found, context, places, owner)
        compare = two_steps_of_draws(context, places, n_paths)
        return _of_draws("two-step", found, compare, context, reference, n_null, rng)
    pairs, there, _ = as_context(_classes(found, context, owner), places, None, owner)
    return two_steps_of_pairs(found, pairs, there, n_samples, rng)


def sequence_defect(
    predictor: Any, context: Any, *, n_orders: int = N_ORDERS, seed: Any = 0
) -> Defect:
    """The range over orders of log p(x_π1, …, x_πn) by the chain rule, in nats; letters only.

    >>> sequence_defect(lambda tokens: [0.5, 0.5], [0, 1, 1]).maximum
    0.0
    """
    owner, found = "sequence_defect", as_predictor(predictor)
    if not isinstance(found, AlphabetPredictor):
        raise UnsupportedError(f"{owner} sums over letters. Of pairs use two_step_defect.")
    tokens = _letters(found, context, owner)
    n_orders = as_whole(n_orders, "n_orders", owner)
    return sequence_of_letters(found, tokens, n_orders, as_generator(seed, owner))


def _letters(predictor: Any, context: Any, owner: str) -> Letters:
    tokens = np.asarray(context)
    tokens = tokens[None] if tokens.ndim == 1 else tokens
    return as_letters(tokens if tokens.size else tokens.astype(int), predictor.n_letters, owner)


def _classes(predictor: RegressionPredictor, context: Any, owner: str) -> Any:
    """The context, in which the labels of a classifier become unit vectors."""
    if not (predictor.categorical and isinstance(context, tuple) and len(context) == 2):
        return context
    keys = np.asarray(context[0])
    return keys, as_classes(context[1], keys.ndim, owner)


def _sampled_context(
    predictor: SampledPredictor, context: Any, query: Any, owner: str
) -> tuple[Any, Any]:
    if predictor.n_letters is not None:
        return _letters(predictor, context, owner), None
    pairs, asked, _ = as_context(context, query, None, owner)
    return pairs, asked


def _of_draws(
    name: str,
    predictor: SampledPredictor,
    compare: Comparison,
    context: Any,
    reference: Any,
    n_null: int,
    rng: np.random.Generator,
) -> Defect:
    if reference is not None:
        reference = as_predictor(reference)
        if isinstance(reference, RegressionPredictor | AlphabetPredictor):
            reference = DrawsOf(reference)
        if reference.n_letters != predictor.n_letters:
            kinds = [each.n_letters or "no" for each in (predictor, reference)]
            wanted = f"a predictor of the same tokens ({kinds[0]} letters)"
            raise bad_argument("reference", f"{name} defect", wanted, f"{kinds[1]} letters")
    return tested_draws(name, compare, predictor, context, reference, n_null, rng)
