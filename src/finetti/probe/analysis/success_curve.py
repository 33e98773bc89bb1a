"""The success curve of one learner at one context length, with a ceiling that has an interval."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from finetti.core.statistics.intervals import Interval
from finetti.display import Card, Displayable, format_interval, format_number
from finetti.probe.analysis.curve_fits import CurveFits, Floats, fit_curves

GRID = 33  # ceilings tried at once, in each of ROUNDS refinements of the interval's end
ROUNDS = 3
LEAST_CEILING = 1e-3
LEAST_RISE = 0.1  # of the fitted success; below it there is none to speak of


@dataclass(frozen=True)
class SuccessCurve(Displayable):
    """``P(m) = (1 − λ)·logistic(a + b·log m)`` of largest likelihood.

    A learner that fails now and then at any m has a ceiling 1 − λ below 1; without λ these failures
    would make the curve flatter and move its middle.

    Args:
        ceiling: 1 − λ.
        ceiling_interval: where twice the loss of profile likelihood is below the χ²₁ quantile.
        steepness: b.
        midpoint: log m at half the ceiling, −a/b.
        p_value: of λ = 0, by the likelihood ratio; half of χ²₁, because λ = 0 is the end of what is
            possible.
        reason: what the data leave open; empty if nothing.
    """

    ceiling: float
    ceiling_interval: Interval
    steepness: float
    midpoint: float
    p_value: float
    reason: str = ""

    @property
    def a(self) -> float:
        """The intercept of the formula."""
        return -self.steepness * self.midpoint

    def probability(self, n_samples: ArrayLike) -> Floats:
        """P(m)."""
        log_sizes = np.log(np.asarray(n_samples, np.float64))
        return self.ceiling * special.expit(self.steepness * (log_sizes - self.midpoint))

    def __card__(self) -> Card:
        ends = (self.ceiling_interval.low, self.ceiling_interval.high)
        fields = (
            ("ceiling 1 − λ", format_interval(self.ceiling, ends)),
            ("a", self.a),
            ("b", self.steepness),
            ("m at half the ceiling", math.exp(self.midpoint)),
            ("p-value of λ = 0", self.p_value),
        )
        return Card("Success curve", fields, notes=(self.reason,) if self.reason else ())


def fit_curve(
    n_samples: ArrayLike, successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> SuccessCurve:
    """The curve of one data set: at least two sizes, and not all outcomes equal.

    >>> curve = fit_curve([50, 70, 100, 140, 200], [0, 10, 38, 40, 40], [50] * 5)
    >>> round(curve.ceiling, 2), round(float(curve.probability(1e6)), 2)
    (0.79, 0.79)
    """
    hits, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    fits = fit_curves(n_samples, hits[None], n)
    plain = fit_curves(n_samples, hits[None], n, 1.0)
    best, without = float(fits.log_likelihood[0]), float(plain.log_likelihood[0])
    ratio = max(0.0, 2 * (best - without))
    return SuccessCurve(
        ceiling=float(fits.ceiling[0]),
        ceiling_interval=_ceiling_interval(n_samples, hits, n, fits, confidence),
        steepness=float(fits.steepness[0]),
        midpoint=float(fits.midpoint[0]),
        p_value=float(special.chdtrc(1, ratio) / 2) if ratio > 0 else 1.0,
        reason=_open_questions(fits),
    )


def _open_questions(fits: CurveFits) -> str:
    rates = fits.probability(fits.log_sizes)[0]
    slope = rates / fits.ceiling[0]
    below, above = fits.log_sizes[slope < 0.5], fits.log_sizes[slope >= 0.5]
    if not above.size:
        return "Success still rises at the largest size: the ceiling is not seen."
    if not below.size and rates[-1] - rates[0] < LEAST_RISE:
        return "Success does not rise from the smallest size on: the slope is not seen."
    if not below.size:
        return (
            "Success is at half its ceiling at the smallest size already: the start of the rise is "
            "not seen."
        )
    if fits.stepped[0]:
        low, high = (format_number(round(math.exp(x), 6)) for x in (below.max(), above.min()))
        return (
            f"The whole rise is between m = {low} and {high}: where there, and how steep it is, "
            "these sizes do not tell."
        )
    return ""


def _ceiling_interval(
    n_samples: ArrayLike, hits: Floats, n: Floats, fits: CurveFits, confidence: float
) -> Interval:
    """Both ends by refining a grid of given ceilings, all of them fitted at once."""
    top, best = float(fits.ceiling[0]), float(fits.log_likelihood[0])
    allowed = best - float(special.chdtri(1, 1 - confidence)) / 2

    def end(far: float) -> float:
        inside = top
        for _ in range(ROUNDS):
            grid = np.linspace(inside, far, GRID)
            rows = np.broadcast_to(hits, (GRID, len(hits)))
            likely = fit_curves(n_samples, rows, n, grid).log_likelihood >= allowed
            likely[0] = True  # by construction, up to rounding
            if likely.all():
                return far
            last = int(likely.argmin()) - 1
            inside, far = float(grid[last]), float(grid[last + 1])
        return inside

    low = end(LEAST_CEILING) if top > LEAST_CEILING else top
    high = end(1.0) if top < 1 else 1.0
    return Interval(0.0 if low <= LEAST_CEILING else low, high, confidence, "profile likelihood")
