"""Intervals for proportions, for statistics of a sample, and for the exponent of a power law."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from finetti.core.arrays import check_finite
from finetti.core.errors import InputError, bad_argument


@dataclass(frozen=True)
class Interval:
    """A confidence interval [low, high]: numbers, or arrays of equal shape.

    >>> 0.3 in Interval(0.2, 0.4, 0.95, "wilson")
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


def _check_confidence(confidence: float, owner: str) -> None:
    if not 0 < confidence < 1:
        raise bad_argument("confidence", owner, "in (0, 1)", confidence)


def _finite(values: ArrayLike, argument: str, owner: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    check_finite(array, argument, owner)
    return array


def wilson(successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion, elementwise.

    The p with ``(k/n − p)² ≤ z² p(1−p)/n``, z the normal quantile of ``confidence``.

    Args:
        successes: k, whole numbers in [0, n].
        trials: n ≥ 1.
        confidence: probability of covering p, approximately.

    >>> interval = wilson(0, 10)
    >>> float(interval.low), round(float(interval.high), 4)
    (0.0, 0.2775)

    Reference: E. B. Wilson, J. Amer. Stat. Assoc. 22 (1927).
    """
    _check_confidence(confidence, "wilson")
    k, n = np.broadcast_arrays(
        _finite(successes, "successes", "wilson"), _finite(trials, "trials", "wilson")
    )
    if not ((n >= 1) & (n == np.floor(n))).all():
        raise bad_argument("trials", "wilson", "whole numbers ≥ 1", trials)
    if not ((k >= 0) & (k <= n) & (k == np.floor(k))).all():
        raise bad_argument("successes", "wilson", "whole numbers in [0, trials]", successes)
    square = special.ndtri((1 - confidence) / 2) ** 2
    root = np.sqrt(square * (square + 4 * k * ((n - k) / n)))
    high = np.where(k == n, 1.0, (2 * k + square + root) / (2 * (n + square)))
    # The smaller root of the quadratic from the product of both: no cancellation, and 0 at k = 0.
    low = (k / n) * (k / (n + square)) / high
    return Interval(low[()], high[()], confidence, "wilson")


def bootstrap(
    sample: ArrayLike,
    statistic: Callable[..., Any],
    confidence: float = 0.95,
    n_resamples: int = 2000,
    *,
    seed: int,
    method: Literal["percentile", "bca"] = "percentile",
) -> Interval:
    """The bootstrap interval of a statistic of independent observations.

    Args:
        sample: n ≥ 2 numbers.
        statistic: function of a one-dimensional array; fast if it takes ``axis`` (as ``np.mean``).
        confidence: probability of covering the true value, approximately.
        n_resamples: how often the sample is drawn anew with replacement.
        seed: the same seed gives the same interval.
        method: quantiles of the resampled statistic, plain or bias-corrected and accelerated. A
            resampled statistic that never varies gives an interval of width 0; where BCa is
            undefined for another reason the percentile interval is returned, and says so.

    >>> bootstrap([1.0, 1.0, 1.0], np.mean, seed=0).width
    0.0

    Reference: B. Efron, "Better bootstrap confidence intervals", J. Amer. Stat. Assoc. 82 (1987).
    """
    _check_confidence(confidence, "bootstrap")
    if method not in ("percentile", "bca"):
        raise bad_argument("method", "bootstrap", "'percentile' or 'bca'", repr(method))
    if n_resamples < 1:
        raise bad_argument("n_resamples", "bootstrap", "at least 1", n_resamples)
    array = _finite(sample, "sample", "bootstrap")
    if array.ndim != 1 or array.size < 2:
        raise bad_argument("sample", "bootstrap", "at least 2 numbers", f"shape {array.shape}")
    with warnings.catch_warnings():
        # SciPy warns where BCa is undefined; the interval below says it instead.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"scipy\.stats")
        result = stats.bootstrap(
            (array,),
            statistic,
            confidence_level=confidence,
            n_resamples=n_resamples,
            batch=max(1, 2**22 // array.size),  # bounded memory, whatever the sample
            method="BCa" if method == "bca" else "percentile",
            rng=np.random.default_rng(seed),
        )
    draws = result.bootstrap_distribution
    if not np.isfinite(draws).all():
        raise InputError(
            "The `statistic` argument of bootstrap must be finite on every resample. Got NaN or "
            "infinity instead. Use a statistic that is defined for repeated observations."
        )
    low, high = (float(end) for end in result.confidence_interval)
    if draws.min() == draws.max():
        low = high = float(draws[0])
    elif not (math.isfinite(low) and math.isfinite(high)):
        tail = (1 - confidence) / 2
        low, high = (float(end) for end in np.quantile(draws, [tail, 1 - tail]))
        return Interval(low, high, confidence, "bootstrap percentile (BCa undefined)")
    return Interval(low, high, confidence, f"bootstrap {method}")


@dataclass(frozen=True)
class Slope:
    """The exponent of a power law y = e^intercept · x^value, with its standard error."""

    value: float
    standard_error: float
    intercept: float
    degrees_of_freedom: int

    def interval(self, confidence: float = 0.95) -> Interval:
        """``value ± t · standard_error`` with Student's quantile t."""
        _check_confidence(confidence, "Slope.interval")
        quantile = -float(special.stdtrit(self.degrees_of_freedom, (1 - confidence) / 2))
        reach = quantile * self.standard_error
        return Interval(self.value - reach, self.value + reach, confidence, "student")


def power_law_slope(x: ArrayLike, y: ArrayLike, y_error: ArrayLike | None = None) -> Slope:
    """The exponent β of y = C x^β by least squares in log x and log y.

    ``minimize Σ_i w_i (log y_i − α − β log x_i)²``, w_i = (y_i/Δy_i)², or 1 without errors.

    Args:
        x: at least 3 positive numbers, not all equal.
        y: as many positive numbers.
        y_error: standard errors Δy of y. Only their ratios matter: their common scale is estimated
            from the residuals (n−2 degrees of freedom), so that a bad fit has wide intervals.

    >>> round(power_law_slope([1, 2, 4, 8], [3, 12, 48, 192]).value, 12)
    2.0
    """
    owner = "power_law_slope"
    arrays = [_positive(x, "x", owner), _positive(y, "y", owner)]
    arrays.append(
        np.ones_like(arrays[1]) if y_error is None else _positive(y_error, "y_error", owner)
    )
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1 or arrays[0].size < 3:
        shapes = [array.shape for array in arrays]
        raise bad_argument("y", owner, "as long as x (and y_error), at least 3", f"shapes {shapes}")
    log_x, log_y = np.log(arrays[0]), np.log(arrays[1])
    weight = np.ones_like(log_y) if y_error is None else (arrays[1] / arrays[2]) ** 2
    weight = weight / weight.sum()
    mean_x, mean_y = weight @ log_x, weight @ log_y
    spread = weight @ (log_x - mean_x) ** 2
    if log_x.min() == log_x.max():
        raise bad_argument("x", owner, "at least two different numbers", f"only {arrays[0][0]}")
    value = weight @ ((log_x - mean_x) * (log_y - mean_y)) / spread
    residual = log_y - mean_y - value * (log_x - mean_x)
    freedom = log_x.size - 2
    error = math.sqrt(weight @ residual**2 / (freedom * spread))
    return Slope(float(value), error, float(mean_y - value * mean_x), freedom)


def _positive(values: ArrayLike, argument: str, owner: str) -> NDArray[np.float64]:
    array = _finite(values, argument, owner)
    if not (array > 0).all():
        raise bad_argument(argument, owner, "positive", array.min())
    return array
