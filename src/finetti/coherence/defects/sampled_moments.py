"""Defects of predictors that can only be sampled, against those of an exact one.

Two sets of draws that a coherent predictor takes from one law are compared by their moments, and
the largest difference in standard errors is the statistic. A reference that is known to be coherent
goes through the same pipeline many times, and the p-value is the rank among its statistics; without
a reference it is Bonferroni's, of normal deviates.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from finetti.coherence.defects.context_pairs import append_pairs, value_scale
from finetti.coherence.defects.defect import Defect
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    LawSampler,
    RegressionPredictor,
    SampledPredictor,
)
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.core.arguments import Floats, one_hot
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import smallest_of
from finetti.latent.world import Pairs

N_PATHS, N_NULL = 1000, 99

# Predictor and generator → two sets of moments (N, B, comparisons, moments).
Comparison = Callable[[SampledPredictor, np.random.Generator], tuple[Floats, Floats]]


def draw_next(predictor: SampledPredictor, rng: Any, context: Any, query: Any, n: int) -> Floats:
    """n draws for every context, (n, B, d); letters are unit vectors."""
    found = predictor.sample(rng, context, query, n)
    return found if predictor.n_letters is None else one_hot(found, predictor.n_letters)


def draw_two(
    predictor: SampledPredictor, rng: Any, context: Any, first: Any, second: Any, n: int
) -> tuple[Floats, Floats]:
    """n times: a draw at the first place, and then one at the second; (n, B, d) each."""
    one = draw_next(predictor, rng, context, first, n)
    new = np.swapaxes(one, 0, 1)
    if isinstance(context, Pairs):
        assert first is not None
        places = np.repeat(first[:, None], n, axis=1)
        longer: Any = append_pairs(context, places, new)
        asked = np.repeat(second, n, axis=0)
    else:
        letters = new.argmax(axis=2).reshape(-1, 1)
        longer, asked = np.concatenate([np.repeat(context, n, axis=0), letters], axis=1), None
    return one, draw_next(predictor, rng, longer, asked, 1)[0].reshape(new.shape).swapaxes(0, 1)


def two_moments(values: Floats) -> Floats:
    """The values and their squares, whose means are the first two moments."""
    return np.concatenate([values, values**2], axis=-1)


def moment_statistic(first: Floats, second: Floats) -> tuple[float, Floats, Floats]:
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


def compare_draws(
    name: str,
    compare: Comparison,
    predictor: SampledPredictor,
    context: Any,
    reference: Any,
    rng: np.random.Generator,
) -> Defect:
    """The defect of draws, and its rank among those of the reference, if there is one."""
    if reference is not None:
        reference = _as_reference(name, predictor, reference)
    largest, gap, error = moment_statistic(*compare(predictor, rng))
    if reference is None:
        chance = smallest_of(1.0, gap.size * 2 * special.ndtr(-largest))
        how = "Bonferroni's p-value"
    else:
        null = [moment_statistic(*compare(reference, rng))[0] for _ in range(N_NULL)]
        chance = rank_p_value(largest, null)
        how = f"rank among {N_NULL} runs of {reference.name}"
    d = gap.shape[-1] // 2 if name != "two-step" else gap.shape[-1]
    scale = value_scale(context) if isinstance(context, Pairs) else np.ones(len(context))
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


def _as_reference(name: str, predictor: SampledPredictor, reference: Any) -> SampledPredictor:
    """The reference, to be sampled as the predictor is."""
    found = as_predictor(reference)
    if isinstance(found, RegressionPredictor | AlphabetPredictor):
        found = LawSampler(found)
    if found.n_letters != predictor.n_letters:
        kinds = [each.n_letters or "no" for each in (predictor, found)]
        wanted = f"a predictor of the same tokens ({kinds[0]} letters)"
        raise bad_argument("reference", f"{name} defect", wanted, f"{kinds[1]} letters")
    return found
