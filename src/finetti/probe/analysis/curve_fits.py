"""Maximum likelihood of many success curves at once: one Newton iteration serves all resamples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Start = tuple[ArrayLike, ArrayLike, ArrayLike]  # midpoint, log steepness, ceiling

ITERATIONS = 200
TOLERANCE = 1e-9  # gain of log-likelihood at which a fit has ended
# Of a curve: from 10 % to 90 % of its ceiling within a factor 80 of m. A gentler one up to 1 and
# a flat one below it look alike at the sizes tried; success that does not rise there is flat.
LEAST_STEEPNESS = 1.0
LIMIT = 0.999  # the steepest curve goes from 1 − LIMIT to LIMIT between the two nearest sizes
RESOLVED = 0.01  # a cell whose P/ceiling is inside (RESOLVED, 1 − RESOLVED) is on the slope
STARTING_CEILINGS = (0.97, 0.75, 0.4)
MAX_LOGIT = 9.0  # of a ceiling that is fitted; a ceiling of 1 is a fit of its own
OF_A_CURVE = ("midpoint", "steepness", "ceiling", "log_likelihood", "stepped")


@dataclass(frozen=True)
class CurveFits:
    """P(m) = ceiling · logistic(steepness · (log m − midpoint)), one curve per data set.

    In the letters of the formula (1 − λ)·logistic(a + b·log m): ceiling = 1 − λ, b = steepness and
    a = −steepness · midpoint. ``stepped``: no size lies on the slope, so that the data say between
    which sizes the curve rises, and nothing of where there or how steeply.
    """

    log_sizes: Floats  # (J,)
    midpoint: Floats  # (R,)
    steepness: Floats
    ceiling: Floats
    log_likelihood: Floats  # without the binomial coefficients, which no parameter changes
    stepped: NDArray[np.bool_]

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> "CurveFits":
        """The curves of some data sets."""
        return CurveFits(self.log_sizes, **{name: getattr(self, name)[rows] for name in OF_A_CURVE})

    def probability(self, log_sizes: Floats) -> Floats:
        """P at each of ``log_sizes``, (R, J)."""
        argument = self.steepness[:, None] * (log_sizes - self.midpoint[:, None])
        return self.ceiling[:, None] * special.expit(argument)

    def log_critical(self, level: Floats | float) -> Floats:
        """log m at which P = level, (R,); ∞ where the ceiling is not above it."""
        share = np.asarray(level) / self.ceiling
        reached = share < 1
        shift = special.logit(np.where(reached, share, 0.5)) / self.steepness
        return np.where(reached, self.midpoint + shift, np.inf)


def fit_curves(
    n_samples: ArrayLike,
    successes: ArrayLike,
    trials: ArrayLike,
    ceiling: ArrayLike | None = None,
) -> CurveFits:
    """Curves of largest likelihood, with a free ceiling or with given ones.

    Fisher scoring with Levenberg's damping in (midpoint, log steepness, logit ceiling), from
    several starts. The midpoint stays within one range of the sizes on either side, and the
    steepness between `LEAST_STEEPNESS` and what the nearest sizes can tell apart: so data without a
    finite maximum (all trials succeed, or a perfect step) end at a limit instead of nowhere, and a
    flat success rate has its own height as its ceiling.

    Args:
        n_samples: the sizes m, (J,), increasing, at least two.
        successes: (R, J), one row per data set.
        trials: of each cell, (J,) or (R, J); cells may be empty.
        ceiling: given 1 − λ, a number or (R,); fitted by default.
    """
    log_sizes = np.log(np.asarray(n_samples, np.float64))
    hits = np.atleast_2d(np.asarray(successes, np.float64))
    n = np.broadcast_to(np.asarray(trials, np.float64), hits.shape)
    if ceiling is not None:
        given = np.broadcast_to(np.asarray(ceiling, np.float64), hits.shape[:1])
        # A ceiling of 1 is logistic regression, which is concave: one start is enough.
        starts = _starts(log_sizes, given)[: 1 if np.all(given == 1) else None]
        return _best(_climbs(log_sizes, hits, n, starts))
    # Resamples of few trials are often equal: each is fitted once.
    different, places = np.unique(np.hstack([hits, n]), axis=0, return_inverse=True)
    if len(different) < len(hits):
        return fit_curves(n_samples, *np.hsplit(different, 2))[places.ravel()]
    plain = fit_curves(n_samples, hits, n, 1.0)
    slope = np.log(plain.steepness)
    tops: list[Start] = [(plain.midpoint, slope, top) for top in STARTING_CEILINGS]
    return _best([plain, *_climbs(log_sizes, hits, n, tops, free=True)])


def _starts(log_sizes: Floats, ceiling: Floats) -> list[Start]:
    """Gentle curves in the middle and at both ends."""
    span = log_sizes[-1] - log_sizes[0]
    middles = (log_sizes[0] + share * span for share in (0.5, 0.05, 0.95))
    return [(middle, np.log(6 / span), ceiling) for middle in middles]


def _best(candidates: list[CurveFits]) -> CurveFits:
    """Row by row the likeliest; of equal ones (up to the tolerance) the first."""
    best, *others = candidates
    for other in others:
        better = other.log_likelihood > best.log_likelihood + 100 * TOLERANCE
        parts = {
            name: np.where(better, getattr(other, name), getattr(best, name)) for name in OF_A_CURVE
        }
        best = CurveFits(best.log_sizes, **parts)
    return best


def _climbs(
    log_sizes: Floats, hits: Floats, n: Floats, starts: list[Start], free: bool = False
) -> list[CurveFits]:
    """Return the fit from each start; all are iterated together, as rows of their own."""
    many, rows = len(starts), len(hits)
    points = np.hstack([[np.broadcast_to(each, rows) for each in start] for start in starts])
    fits = _climb(log_sizes, np.tile(hits, (many, 1)), np.tile(n, (many, 1)), points, free)
    return [fits[slice(place * rows, (place + 1) * rows)] for place in range(many)]


def _climb(log_sizes: Floats, hits: Floats, n: Floats, start: Floats, free: bool) -> CurveFits:
    """Damped Fisher scoring of all rows, each from its start."""
    span, gap = np.ptp(log_sizes), np.diff(log_sizes).min()
    steepest = 2 * special.logit(LIMIT) / gap
    gentlest = min(LEAST_STEEPNESS, steepest)
    low = np.array([log_sizes[0] - span, np.log(gentlest), -MAX_LOGIT])
    high = np.array([log_sizes[-1] + span, np.log(steepest), MAX_LOGIT])
    rows = len(hits)
    with np.errstate(divide="ignore"):  # a ceiling of 1 is a logit of ∞
        point = np.stack([start[0], start[1], special.logit(start[2])], axis=1)
    if free:
        point = np.clip(point, low, high)
    else:
        low[2], high[2] = -np.inf, np.inf
        point[:, :2] = np.clip(point[:, :2], low[:2], high[:2])
    value = _log_likelihood(log_sizes, hits, n, point)
    damping = np.full(rows, 1e-3)
    active = np.arange(rows)
    for _ in range(ITERATIONS):
        here, k, total = point[active], hits[active], n[active]
        score, information = _derivatives(log_sizes, k, total, here)
        if not free:
            score[:, 2] = 0.0
        # A parameter at its limit that would go further stays where it is.
        held = ((here <= low) & (score < 0)) | ((here >= high) & (score > 0)) | (score == 0)
        score[held] = 0.0
        information *= ~held[:, :, None] & ~held[:, None, :]
        diagonal = np.einsum("rii->ri", information)
        diagonal += damping[active, None] * (diagonal + 1e-6 * diagonal.max(1, keepdims=True))
        diagonal += np.where(held, 1.0, 1e-12)
        step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        step *= np.minimum(1.0, 1.0 / np.maximum(np.abs(step).max(1, keepdims=True), 1e-300))
        there = np.where(held, here, np.clip(here + step, low, high))
        reached = _log_likelihood(log_sizes, k, total, there)
        gain = reached - value[active]
        better = gain > 0
        moved = active[better]
        point[moved], value[moved] = there[better], reached[better]
        damping[active] *= np.where(better, 0.2, 10.0)
        done = (better & (gain < TOLERANCE)) | (damping[active] > 1e8) | held.all(1)
        damping = np.maximum(damping, 1e-9)
        active = active[~done]
        if not active.size:
            break
    midpoint, steepness, top = point[:, 0], np.exp(point[:, 1]), special.expit(point[:, 2])
    slope = special.expit(steepness[:, None] * (log_sizes - midpoint[:, None]))
    on_slope = (slope > RESOLVED) & (slope < 1 - RESOLVED) & (n > 0)
    return CurveFits(log_sizes, midpoint, steepness, top, value, ~on_slope.any(1))


def _parts(log_sizes: Floats, point: Floats) -> tuple[Floats, Floats, Floats]:
    """The logistic's argument z, λ, and 1 − P without cancellation."""
    z = np.exp(point[:, 1:2]) * (log_sizes - point[:, :1])
    z = np.clip(z, -600, 600)
    miss = special.expit(-point[:, 2:])  # λ; exactly 0 where the ceiling is 1
    return z, miss, miss + (1 - miss) * special.expit(-z)


def _log_likelihood(log_sizes: Floats, hits: Floats, n: Floats, point: Floats) -> Floats:
    z, miss, fail = _parts(log_sizes, point)
    log_success = np.log1p(-miss) - np.logaddexp(0, -z)
    return (hits * log_success + (n - hits) * np.log(fail)).sum(1)


def _derivatives(
    log_sizes: Floats, hits: Floats, n: Floats, point: Floats
) -> tuple[Floats, Floats]:
    """Score Σ(k − nP)h and information Σ nP(1 − P)hhᵀ, with h the gradient of logit P."""
    z, miss, fail = _parts(log_sizes, point)
    success = (1 - miss) * special.expit(z)
    by_z = special.expit(-z) / fail
    gradient = np.stack([-np.exp(point[:, 1:2]) * by_z, z * by_z, miss / fail], axis=2)
    score = np.einsum("rj,rja->ra", hits - n * success, gradient)
    weight = (n * success * fail)[:, :, None] * gradient
    return score, np.einsum("rja,rjb->rab", weight, gradient)
