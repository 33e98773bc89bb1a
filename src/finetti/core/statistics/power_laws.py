"""Power laws by least squares in the logarithms."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from finetti.core.arguments import check_finite
from finetti.core.errors import bad_argument
from finetti.core.statistics.intervals import Interval


@dataclass(frozen=True)
class Slope:
    """The exponent of a power law y = e^intercept · x^value, with its standard error."""

    value: float
    standard_error: float
    intercept: float
    degrees_of_freedom: int

    def interval(self, confidence: float = 0.95) -> Interval:
        """``value ± t · standard_error`` with Student's quantile t."""
        if not 0 < confidence < 1:
            raise bad_argument("confidence", "Slope.interval", "in (0, 1)", confidence)
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
    array = np.asarray(values, dtype=np.float64)
    check_finite(array, argument, owner)
    if not (array > 0).all():
        raise bad_argument(argument, owner, "positive", array.min())
    return array
