"""Arithmetic on logarithms, in float64: numbers too large or too small to write down.

Every function takes scalars or arrays, keeps the digits that the textbook formula loses, refuses
NaN, and reads ``-inf`` as the logarithm of zero. Where terms of both signs meet (a result near 0
made from arguments that are not), the ABSOLUTE error is at the rounding of the arguments.
"""

import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from finetti.core.errors import bad_argument

# log 2 in two pieces: x − log 2 then keeps its digits for x near log 2.
_LOG2_HIGH, _LOG2_LOW = 0.6931471805599453, 2.3190468138462996e-17


def _checked(values: ArrayLike, argument: str, owner: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).any():
        raise bad_argument(argument, owner, "free of NaN", f"{np.isnan(array).sum()} NaN")
    return array


def _non_negative(x: ArrayLike, owner: str) -> NDArray[np.float64]:
    array = _checked(x, "x", owner)
    if (array < 0).any():
        raise bad_argument("x", owner, "≥ 0", array.min())
    return array


def log_sum(log_values: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Any:
    """``log Σ_i e^{a_i}`` along ``axis`` (None: over everything); ``-inf`` for an empty sum.

    >>> round(float(log_sum([1000.0, 1000.0])), 6)
    1000.693147
    """
    return scipy.special.logsumexp(_checked(log_values, "log_values", "log_sum"), axis=axis)


def log_add(log_a: ArrayLike, log_b: ArrayLike) -> Any:
    """``log(e^a + e^b)``, elementwise."""
    return np.logaddexp(_checked(log_a, "log_a", "log_add"), _checked(log_b, "log_b", "log_add"))


def log_subtract(log_a: ArrayLike, log_b: ArrayLike) -> Any:
    """``log(e^a − e^b)``, elementwise: ``-inf`` where a = b < ∞; refused where a < b or a = b = ∞.

    >>> float(log_subtract(-1000.0, -1000.0))
    -inf
    """
    a, b = np.broadcast_arrays(
        _checked(log_a, "log_a", "log_subtract"), _checked(log_b, "log_b", "log_subtract")
    )
    if (a < b).any() or (b == math.inf).any():
        raise bad_argument(
            "log_b", "log_subtract", "finite and at most log_a", f"{b} for log_a = {a}"
        )
    # a = b = −∞ is 0 − 0; their difference is no number.
    gap = np.where(a == b, 0.0, a - np.where(a == b, 0.0, b))
    return (a + log1mexp(gap))[()]


def log1mexp(x: ArrayLike) -> Any:
    """``log(1 − e^{−x})`` for x ≥ 0, the sign convention of ``jax.nn.log1mexp``; ``-inf`` at 0.

    >>> round(float(log1mexp(1e-20)), 6)
    -46.051702

    Reference: M. Mächler, "Accurately computing log(1 − exp(−|a|))" (2012).
    """
    x = _non_negative(x, "log1mexp")
    with np.errstate(divide="ignore"):
        return np.where(
            x <= _LOG2_HIGH,
            np.log(-np.expm1(-x)),
            np.log1p(-np.exp(-np.maximum(x, _LOG2_HIGH))),
        )[()]


def log_expm1(x: ArrayLike) -> Any:
    """``log(e^x − 1)`` for x ≥ 0; ``-inf`` at 0.

    >>> float(log_expm1(1e4))
    10000.0
    """
    x = _non_negative(x, "log_expm1")
    # The result is 0 at log 2, and there e^x − 2 = 2(e^{x − log 2} − 1) keeps the digits.
    offset = (np.clip(x, 0.4, 1.0) - _LOG2_HIGH) - _LOG2_LOW
    near = np.log1p(2 * np.expm1(offset))
    return np.where((x > 0.4) & (x < 1.0), near, x + log1mexp(x))[()]


def log1pexp(x: ArrayLike) -> Any:
    """``log(1 + e^x)``, the softplus.

    >>> float(log1pexp(-100.0)) == math.exp(-100.0)
    True
    """
    return np.logaddexp(0.0, _checked(x, "x", "log1pexp"))


def _stirling_error(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """``log z! − log( √(2πz) (z/e)^z )`` for whole z ≥ 1."""
    large = 1 / np.maximum(z, len(_SMALL_ERRORS))
    square = large**2
    series = 1 / 1188  # the next term is below 2⁻⁵³
    for coefficient in (1 / 1680, 1 / 1260, 1 / 360, 1 / 12):
        series = coefficient - square * series
    small = _SMALL_ERRORS[np.minimum(z, len(_SMALL_ERRORS) - 1).astype(int)]
    return np.where(z < len(_SMALL_ERRORS), small, large * series)


_SMALL_ERRORS = np.array(
    [math.nan]
    + [
        math.log(math.factorial(z) / z**z * math.exp(z) / math.sqrt(2 * math.pi * z))
        for z in range(1, 16)
    ]
)


def log_binomial(n: ArrayLike, k: ArrayLike) -> Any:
    """``log C(n, k)`` for whole numbers 0 ≤ k ≤ n, elementwise, for n up to the largest float64.

    With k ≤ n/2 and δ the error of Stirling's formula,
    ``k log(n/k) − (n−k+½) log(1−k/n) − ½ log(2πk) + δ(n) − δ(k) − δ(n−k)``.
    Differences of log-gamma lose all digits for large n; here no large terms cancel. Both numbers
    are read as float64: above 2⁵³ give the smaller of k and n−k, or their difference is rounded.

    >>> round(float(log_binomial(5, 2)), 12) == round(math.log(10), 12)
    True
    >>> round(float(log_binomial(1e15, 2)), 6)
    68.384406

    Reference: C. Loader, "Fast and accurate computation of binomial probabilities" (2000).
    """
    n, k = np.broadcast_arrays(_whole(n, "n"), _whole(k, "k"))
    if (k > n).any():
        raise bad_argument("k", "log_binomial", "at most n", f"{k} for n = {n}")
    k = np.minimum(k, n - k)
    edge = k == 0
    n, k = np.where(edge, 2.0, n), np.where(edge, 1.0, k)
    entropy = k * np.log(n / k) - (n - k + 0.5) * np.log1p(-k / n) - 0.5 * np.log(2 * math.pi * k)
    value = entropy + _stirling_error(n) - _stirling_error(k) - _stirling_error(n - k)
    return np.where(edge, 0.0, value)[()]


def _whole(values: ArrayLike, argument: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except OverflowError:
        array = np.array(math.inf)
    if not (np.isfinite(array).all() and (array >= 0).all() and (array == np.floor(array)).all()):
        raise bad_argument(argument, "log_binomial", "whole numbers in [0, 1.8e308]", values)
    return array
