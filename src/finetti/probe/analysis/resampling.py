"""Trials drawn again: how other data of the same kind would have come out."""

import numpy as np
from numpy.typing import NDArray

from finetti.probe.analysis.curve_fits import Floats
from finetti.probe.analysis.trial_tables import Frame


def resample_cells(
    successes: Floats,
    trials: Floats,
    n_resamples: int,
    rng: np.random.Generator,
    coins: np.random.Generator | None = None,
) -> Floats:
    """Successes of resampled cells, (R, J): independent trials, drawn again in each cell.

    Args:
        coins: tosses the coins of `_smooth_counts`, where that is not ``rng``.
    """
    rate = np.divide(successes, trials, out=np.zeros_like(trials), where=trials > 0)
    whole = trials.astype(int)
    drawn = rng.binomial(whole, rate, (n_resamples, len(whole)))
    return _smooth_counts(drawn, whole, coins or rng)


def resample_seeds(
    outcomes: Frame,
    n_resamples: int,
    rng: np.random.Generator,
    coins: np.random.Generator | None = None,
) -> Floats:
    """Successes of resampled cells, (R, J): whole seeds, drawn again.

    Trials of one seed share their data and stay together, so that what they have in common is not
    counted as independent evidence. Seeds that were tried in the same cells replace each other,
    hence every cell keeps its number of trials.

    Args:
        outcomes: success by seed (rows) and cell (columns), NaN where a seed was not tried.
        coins: tosses the coins of `_smooth_counts`, where that is not ``rng``.
    """
    values = outcomes.to_numpy(np.float64)
    tried = ~np.isnan(values)
    hits = np.zeros((n_resamples, values.shape[1]))
    for pattern in np.unique(tried, axis=0):
        rows = np.flatnonzero((tried == pattern).all(1))
        shares = np.full(len(rows), 1 / len(rows))
        weights = rng.multinomial(len(rows), shares, size=n_resamples)
        hits += weights @ np.nan_to_num(values[rows])
    total = tried.sum(0)
    return _smooth_counts(hits.astype(int), total, coins or rng)


def _smooth_counts(
    drawn: NDArray[np.int_], trials: NDArray[np.int_], rng: np.random.Generator
) -> Floats:
    """Smooth the bootstrap: draw each cell at the rate (k + ½)/(n + 1).

    Where all n trials agree, drawing them again would never show another outcome, and the interval
    would be too narrow.
    """
    flip = 0.5 / (trials + 1)
    tossed = drawn - rng.binomial(drawn, flip) + rng.binomial(trials - drawn, flip)
    return tossed.astype(np.float64)
