"""Standard errors and confidence intervals: of means, draws, success rates and power laws."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from finetti.core.arguments import check_finite
from finetti.core.errors import bad_argument


@dataclass(frozen=True)
class Interval:
    """A confidence interval [low, high]: numbers, or arrays of equal shape.

    >>> 0.3 in Interval(0.2, 0.4, 0.95, "student")
    True
    """

    low: Any
    high: Any
    confidence: float
    method: str

    def contains(self, value: Any) -> Any:
        """Elementwise ``low ≤ value ≤ high``."""
        return (self.low <= value) & (value <= self.high)

    def __contains__(self, value: Any) -> bool:
        return bool(np.all(self.contains(value)))

    @property
    def width(self) -> Any:
        """``high − low``."""
        return self.high - self.low


def mean_with_error(values: ArrayLike, axis: int = 0) -> tuple[Any, Any]:
    """The mean of independent values over an axis, and its standard error s/√n; NaN of one value.

    >>> mean_with_error([1.0, 3.0])
    (2.0, 1.0)
    """
    array = np.asarray(values, np.float64)
    n = array.shape[axis]
    mean = array.mean(axis=axis)
    error = array.std(axis=axis, ddof=1) / math.sqrt(n) if n > 1 else np.full_like(mean, np.nan)
    return (float(mean), float(error)) if mean.ndim == 0 else (mean, error)


def percentile_interval(
    draws: ArrayLike,
    confidence: float,
    method: str = "bootstrap",
    *,
    axis: int = 0,
    observed: bool = False,
) -> Interval:
    """The equal-tailed interval between two quantiles of draws.

    Args:
        draws: as many as there are along ``axis``.
        confidence: the share of draws between the ends.
        method: how they were drawn.
        axis: of the draws.
        observed: whether the ends must be draws themselves, not numbers between two of them: where
            some are infinite there is nothing between.

    >>> percentile_interval(np.arange(101.0), 0.9).high
    95.0
    """
    if not 0 < confidence < 1:
        raise bad_argument("confidence", "interval", "in (0, 1)", confidence)
    shares = [(1 - confidence) / 2, (1 + confidence) / 2]
    kind = "inverted_cdf" if observed else "linear"
    low, high = np.quantile(np.asarray(draws, np.float64), shares, axis=axis, method=kind)
    if low.ndim == 0:
        low, high = float(low), float(high)
    return Interval(low, high, confidence, method)


def wilson_interval(successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a success probability; [0, 1] without trials.

    ``(p̂ + z²/2n ± z √(p̂(1 − p̂)/n + z²/4n²)) / (1 + z²/n)``, p̂ = successes / n: all p that a score
    test does not reject. Unlike p̂ ± z √(p̂(1 − p̂)/n) it has a width at p̂ = 0 and 1.

    >>> interval = wilson_interval(12, 12)
    >>> round(interval.low, 3), interval.high
    (0.758, 1.0)
    """
    owner = "wilson_interval"
    if not 0 < confidence < 1:
        raise bad_argument("confidence", owner, "in (0, 1)", confidence)
    hits, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    check_finite(n, "trials", owner)
    check_finite(hits, "successes", owner)
    if not np.all((hits >= 0) & (hits <= n)):
        raise bad_argument("successes", owner, "from 0 to trials", f"{successes} of {trials}")
    z_squared = float(special.ndtri((1 + confidence) / 2)) ** 2
    center = hits + z_squared / 2
    reach = np.sqrt(z_squared * (hits * (n - hits) / np.maximum(n, 1) + z_squared / 4))
    # The ends are 0 and 1 exactly where no, or every, trial succeeded.
    low = np.where(hits == 0, 0.0, (center - reach) / (n + z_squared))
    high = np.where(hits == n, 1.0, (center + reach) / (n + z_squared))
    if low.ndim == 0:
        return Interval(float(low), float(high), confidence, "wilson")
    return Interval(low, high, confidence, "wilson")
