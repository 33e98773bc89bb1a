"""Critical sizes of one learner at one context length, from its trials."""

from collections.abc import Sequence

import numpy as np

from finetti.core.keys import generator
from finetti.probe.analysis.critical_size import CriticalSize, critical_size, one_size
from finetti.probe.analysis.curve_fits import Floats, fit_curves
from finetti.probe.analysis.resampling import resample_cells, resample_seeds
from finetti.probe.analysis.trial_tables import Frame, count_cells


def learner_sizes(
    trials: Frame,
    levels: Sequence[float | None],
    confidence: float,
    n_resamples: int,
    seed: int,
    coins: str = "",
) -> list[CriticalSize]:
    """The critical size at each level; whole seeds are drawn again where trials have one.

    Chance depends on T and ``seed`` only, not on who the learner is: equal trials have equal
    intervals, and learners that were tried with the same seeds have the same seeds drawn, so that
    the differences of their resamples are paired. What a resample cannot know, an outcome that was
    not seen and the place of a rise within its bracket, is drawn anew for other ``coins``.

    Args:
        trials: of one learner at one context length, as `read_trials` gives them.
        levels: success probabilities; None is half the ceiling.
        confidence: of the intervals.
        n_resamples: of the bootstrap.
        seed: of the bootstrap.
        coins: of the partner in a comparison, any other name: two learners whose outcomes are equal
            would otherwise be equal in every resample, however few the trials.
    """
    m, hits, n = cells_of(trials)
    if len(m) == 1:
        one = (float(m[0]), float(hits[0]), float(n[0]))
        return [one_size(*one, level, confidence) for level in levels]
    length = int(trials["context_length"].iloc[0])
    rng = generator("critical size", seed, length)
    fits = fit_curves(m, hits[None], n)
    own = generator("coins", seed, length, coins) if coins else None
    resampled = fit_curves(m, _resample(trials, m, hits, n, n_resamples, rng, own), n)
    # Where a rise lies within its bracket is not known of either learner: different learners must
    # not be placed alike, or their difference would look known.
    place = generator("place of a step", seed, length, hits.tolist(), *filter(None, [coins]))
    return [critical_size(fits, resampled, (hits, n), level, confidence, place) for level in levels]


def cells_of(trials: Frame) -> tuple[Floats, Floats, Floats]:
    """Sizes m, successes and trials of each."""
    cells = count_cells(trials, ())
    m, hits, n = (cells[name].to_numpy(np.float64) for name in ("n_samples", "successes", "trials"))
    return m, hits, n


def _resample(
    trials: Frame,
    m: Floats,
    hits: Floats,
    n: Floats,
    n_resamples: int,
    rng: np.random.Generator,
    coins: np.random.Generator | None,
) -> Floats:
    known = "seed" in trials and trials["seed"].notna().all()
    if not known or trials.duplicated(["seed", "n_samples"]).any():
        return resample_cells(hits, n, n_resamples, rng, coins)
    outcomes = trials.pivot(index="seed", columns="n_samples", values="success")
    return resample_seeds(outcomes[m], n_resamples, rng, coins)
