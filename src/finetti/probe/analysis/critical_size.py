"""The sample size from which a learner succeeds, with an interval, or why it is not known."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from finetti.core.numbers import json_number
from finetti.core.statistics import Interval, wilson_interval
from finetti.display.card import Card
from finetti.display.numbers import format_interval, format_number
from finetti.display.shown import Shown
from finetti.probe.analysis.curve_fits import CurveFits, Floats

Censored = Literal["", "left", "right", "unknown"]
PAPER_RESAMPLES = 50


@dataclass(frozen=True)
class CriticalSize(Shown):
    """The m at which the success probability reaches a level.

    Args:
        value: None if it is not between the smallest and the largest size tried.
        interval: bootstrap percentiles; 0 and ∞ are "below the smallest" and "above the largest
            size", which is as much as the trials tell. Not open at an end where Wilson's interval
            of the success there is on the inner side of the level.
        level: the success probability, or None for half the ceiling.
        censored: "right" if not reached up to ``m_max``, "left" if passed at ``m_min`` already,
            "unknown" if the trials do not even tell this.
        reason: of the censoring.
        log_replicates: log m of every resample, within one range of the sizes: for what is computed
            from it.
    """

    value: float | None
    interval: Interval
    level: float | None
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
        if self.censored == "unknown":
            return "unknown"
        sign, end = ("> ", self.m_max) if self.censored == "right" else ("≤ ", self.m_min)
        return f"{sign}{format_interval(end, ends)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an open end of the interval is 0 or "Infinity"."""
        return {
            "n_samples": self.value,
            "low": json_number(float(self.interval.low)),
            "high": json_number(float(self.interval.high)),
            "confidence": self.interval.confidence,
            "level": self.level,
            "censored": self.censored,
            "reason": self.reason,
        }

    def __card__(self) -> Card:
        at = "half the ceiling" if self.level is None else f"{format_number(self.level)}"
        fields = (("samples", self.text), ("success", at))
        return Card("Critical sample size", fields, notes=(self.reason,) if self.reason else ())


def critical_size(
    fits: CurveFits,
    resampled: CurveFits,
    cells: tuple[Floats, Floats],
    level: float | None,
    confidence: float,
    rng: np.random.Generator,
) -> CriticalSize:
    """Where the fitted curve reaches ``level`` (None: half its ceiling).

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
    shares = [(1 - confidence) / 2, (1 + confidence) / 2]
    # A quantile that is one of the values: between −∞ and a number there is no other.
    low, high = np.quantile(seen, shares, method="inverted_cdf")
    interval = Interval(
        {np.inf: m_max, -np.inf: 0.0}.get(low, math.exp(min(low, 700))),
        {np.inf: math.inf, -np.inf: m_min}.get(high, math.exp(min(high, 700))),
        confidence,
        "bootstrap",
    )
    censored: Censored = "right" if log_m > sizes[-1] else "left" if log_m < sizes[0] else ""
    return CriticalSize(
        None if censored else math.exp(log_m),
        interval,
        level,
        censored,
        _why(censored, level, float(np.quantile(resampled.ceiling, shares[1])), m_min, m_max),
        m_min,
        m_max,
        np.clip(drawn, sizes[0] - span, sizes[-1] + span),
    )


def _limits(
    log_sizes: Floats, hits: Floats, n: Floats, level: float | None, confidence: float
) -> tuple[float, float]:
    """log m between which the critical size is, by the success at the first and the last size."""
    wilson = wilson_interval(hits, n, confidence)
    low, high = np.asarray(wilson.low), np.asarray(wilson.high)
    passed = low[-1] > (0.5 if level is None else level)  # half of any ceiling is at most ½
    ahead = level is not None and high[0] < level
    return (log_sizes[0] if ahead else -np.inf, log_sizes[-1] if passed else np.inf)


def _why(
    censored: Censored, level: float | None, ceiling: float, m_min: float, m_max: float
) -> str:
    at = "half the ceiling" if level is None else f"success {format_number(level)}"
    if censored == "right":
        low = f", and the ceiling is below {ceiling:.2f}" if ceiling < (level or 0) else ""
        return f"{at} is not reached up to m_max = {format_number(m_max)}{low}"
    return f"{at} is already passed at m_min = {format_number(m_min)}" if censored else ""


def _log_critical(fits: CurveFits, level: float | None, share: Floats) -> Floats:
    """Of a step, the point at ``share`` of its bracket: it may be anywhere there."""
    sizes, log_m = fits.log_sizes, fits.log_critical(fits.ceiling / 2 if level is None else level)
    after = np.searchsorted(sizes, fits.midpoint)
    within = fits.stepped & (after > 0) & (after < len(sizes)) & np.isfinite(log_m)
    low, high = sizes[np.maximum(after - 1, 0)], sizes[np.minimum(after, len(sizes) - 1)]
    return np.where(within, low + share * (high - low), log_m)


def one_size(
    size: float, successes: float, trials: float, level: float | None, confidence: float
) -> CriticalSize:
    """With a single size there is no curve, only the side on which it lies."""
    rate = successes / trials
    interval, censored = Interval(0.0, math.inf, confidence, "wilson"), "unknown"
    if level is not None:
        wilson = wilson_interval(successes, trials, confidence)
        low = size if wilson.high < level else 0.0
        high = size if wilson.low > level else math.inf
        interval = Interval(low, high, confidence, "wilson")
        censored = "left" if rate > level else "right"
    reason = f"only one size, m = {format_number(size)}, was tried, with success {rate:.2f}"
    return CriticalSize(None, interval, level, censored, reason, size, size, np.zeros(0))


def first_above(
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
