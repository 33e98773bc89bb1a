"""The sample size from which a learner succeeds, with an interval, or why it is not known."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from finetti.core.numerics.random_keys import generator
from finetti.core.statistics.intervals import Interval, percentile_interval, wilson_interval
from finetti.display import Card, Displayable, format_interval, format_number
from finetti.probe.analysis.curve_fits import CurveFits, Floats, fit_curves
from finetti.probe.analysis.resampling import resample_cells, resample_seeds
from finetti.probe.analysis.trial_tables import Frame, count_cells

Censored = Literal["", "left", "right"]
PAPER_RESAMPLES = 50


@dataclass(frozen=True)
class CriticalSize(Displayable):
    """The m at which the success probability reaches a level.

    Args:
        value: None if it is not between the smallest and the largest size tried.
        interval: bootstrap percentiles; 0 and ∞ are "below the smallest" and "above the largest
            size", which is as much as the trials tell. Not open at an end where Wilson's interval
            of the success there is on the inner side of the level.
        level: the success probability.
        censored: "right" if not reached up to ``m_max``, "left" if passed at ``m_min`` already.
        reason: of the censoring.
        log_replicates: log m of every resample, within one range of the sizes: for what is computed
            from it.
    """

    value: float | None
    interval: Interval
    level: float
    censored: Censored
    reason: str
    m_min: float
    m_max: float
    log_replicates: Floats = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The size and its interval as people read them.

        >>> low = CriticalSize(None, Interval(0, 60, .95, ""), .5, "left", "", 50, 90, np.zeros(0))
        >>> low.text
        '≤ 50 [0, 60]'
        """
        ends = (float(self.interval.low), float(self.interval.high))
        if self.value is not None:
            return format_interval(self.value, ends)
        sign, end = ("> ", self.m_max) if self.censored == "right" else ("≤ ", self.m_min)
        return f"{sign}{format_interval(end, ends)}"

    def __card__(self) -> Card:
        fields = (("samples", self.text), ("success", format_number(self.level)))
        return Card("Critical sample size", fields, notes=(self.reason,) if self.reason else ())


def critical_size(
    trials: Frame,
    level: float,
    confidence: float,
    n_resamples: int,
    seed: int,
    coins: str = "",
) -> CriticalSize:
    """The critical size of one learner at one context length.

    Whole seeds are drawn again where trials have one. Chance depends on T and ``seed`` only, not on
    who the learner is: equal trials have equal intervals, and learners that were tried with the
    same seeds have the same seeds drawn, so that the differences of their resamples are paired.
    What a resample cannot know, an outcome that was not seen and the place of a rise within its
    bracket, is drawn anew for other ``coins``.

    Args:
        trials: of one learner at one context length, as `read_trials` gives them.
        level: success probability.
        confidence: of the interval.
        n_resamples: of the bootstrap.
        seed: of the bootstrap.
        coins: of the partner in a comparison, any other name: two learners whose outcomes are equal
            would otherwise be equal in every resample, however few the trials.
    """
    m, hits, n = success_counts(trials)
    if len(m) == 1:
        return single_size_estimate(float(m[0]), float(hits[0]), float(n[0]), level, confidence)
    length = int(trials["context_length"].iloc[0])
    rng = generator("critical size", seed, length)
    own = generator("coins", seed, length, coins) if coins else None
    resampled = fit_curves(m, _resample(trials, m, hits, n, n_resamples, rng, own), n)
    # Where a rise lies within its bracket is not known of either learner: different learners must
    # not be placed alike, or their difference would look known.
    place = generator("place of a step", seed, length, hits.tolist(), *filter(None, [coins]))
    fits = fit_curves(m, hits[None], n)
    return size_of_curve(fits, resampled, (hits, n), level, confidence, place)


def success_counts(trials: Frame) -> tuple[Floats, Floats, Floats]:
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


def size_of_curve(
    fits: CurveFits,
    resampled: CurveFits,
    cells: tuple[Floats, Floats],
    level: float,
    confidence: float,
    rng: np.random.Generator,
) -> CriticalSize:
    """Return the critical size at which the fitted curve reaches ``level``.

    Args:
        fits: the curve of the data, one row.
        resampled: those of resampled data.
        cells: successes and trials at each size.
        level: of success.
        confidence: of the interval.
        rng: places the rise inside its bracket in resamples that are steps.
    """
    sizes = fits.log_sizes
    # A few successes at small sizes make a curve so flat that it is at the level beyond the sizes
    # tried, even if all trials at the largest succeed: success that rises is at the level before.
    within = _limits(sizes, *cells, level, confidence)
    log_m = float(np.clip(_log_critical(fits, level, np.array([0.5])), *within)[0])
    drawn = _log_critical(resampled, level, rng.uniform(size=len(resampled.ceiling)))
    drawn = np.clip(drawn, *within)
    span = np.ptp(sizes)
    m_min, m_max = (float(round(math.exp(x), 9)) for x in (sizes[0], sizes[-1]))
    seen = np.where(drawn > sizes[-1], np.inf, np.where(drawn < sizes[0], -np.inf, drawn))
    ends = percentile_interval(seen, confidence, observed=True)
    interval = Interval(
        {np.inf: m_max, -np.inf: 0.0}.get(ends.low, math.exp(min(ends.low, 700))),
        {np.inf: math.inf, -np.inf: m_min}.get(ends.high, math.exp(min(ends.high, 700))),
        confidence,
        ends.method,
    )
    ceiling = float(np.quantile(resampled.ceiling, (1 + confidence) / 2))
    censored: Censored = "right" if log_m > sizes[-1] else "left" if log_m < sizes[0] else ""
    return CriticalSize(
        None if censored else math.exp(log_m),
        interval,
        level,
        censored,
        _why(censored, level, ceiling, m_min, m_max),
        m_min,
        m_max,
        np.clip(drawn, sizes[0] - span, sizes[-1] + span),
    )


def _limits(
    log_sizes: Floats, hits: Floats, n: Floats, level: float, confidence: float
) -> tuple[float, float]:
    """log m between which the critical size is, by the success at the first and the last size."""
    wilson = wilson_interval(hits, n, confidence)
    low, high = np.asarray(wilson.low), np.asarray(wilson.high)
    return (
        log_sizes[0] if high[0] < level else -np.inf,
        log_sizes[-1] if low[-1] > level else np.inf,
    )


def _why(censored: Censored, level: float, ceiling: float, m_min: float, m_max: float) -> str:
    at = f"success {format_number(level)}"
    if censored == "right":
        low = f", and the ceiling is below {ceiling:.2f}" if ceiling < level else ""
        return f"{at} is not reached up to m_max = {format_number(m_max)}{low}"
    return f"{at} is already passed at m_min = {format_number(m_min)}" if censored else ""


def _log_critical(fits: CurveFits, level: float, share: Floats) -> Floats:
    """log m at which each curve reaches the level; of a step, at ``share`` of its bracket.

    A step may be anywhere between the two sizes of its bracket.
    """
    sizes, log_m = fits.log_sizes, fits.log_critical(level)
    after = np.searchsorted(sizes, fits.midpoint)
    within = fits.stepped & (after > 0) & (after < len(sizes)) & np.isfinite(log_m)
    low, high = sizes[np.maximum(after - 1, 0)], sizes[np.minimum(after, len(sizes) - 1)]
    return np.where(within, low + share * (high - low), log_m)


def single_size_estimate(
    size: float, successes: float, trials: float, level: float, confidence: float
) -> CriticalSize:
    """Return on which side of a single size the critical size lies; one size has no curve."""
    rate = successes / trials
    wilson = wilson_interval(successes, trials, confidence)
    low = size if wilson.high < level else 0.0
    high = size if wilson.low > level else math.inf
    reason = f"only one size, m = {format_number(size)}, was tried, with success {rate:.2f}"
    return CriticalSize(
        None,
        Interval(low, high, confidence, "wilson"),
        level,
        "left" if rate > level else "right",
        reason,
        size,
        size,
        np.zeros(0),
    )


def first_size_above(
    n_samples: Floats, successes: Floats, trials: Floats, level: float, rng: np.random.Generator
) -> tuple[float | None, float | None]:
    """The smallest m with success rate > ``level``, as the paper defines the critical size.

    Its standard error is from 50 bootstrap resamples of the trials (Section 5, edelman2022); None
    where more than a tenth of them do not reach the level.
    """
    drawn = rng.binomial(trials.astype(int), successes / trials, (PAPER_RESAMPLES, len(trials)))
    above = np.concatenate([successes[None], drawn]) > level * trials
    found = np.where(above.any(1), n_samples[above.argmax(1)], np.nan)
    value, others = found[0], found[1:]
    others = others[~np.isnan(others)]
    error = float(others.std(ddof=1)) if len(others) >= 0.9 * PAPER_RESAMPLES else None
    return (None if np.isnan(value) else float(value)), error
