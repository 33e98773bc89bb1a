"""The cover of a ball by its dimension: a logarithm for every parameter."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from finetti.bounds.value import log_of
from finetti.core.numerics.logspace import log1pexp

_LOG_2 = math.log(2)


def count_cover(parameters: ArrayLike, log_norm: ArrayLike, log_resolution: ArrayLike) -> Any:
    """log N = D·log(1 + 2B/x), inside: a ball of radius B in any norm on R^D

    A largest set of members that are more than x apart is a cover; balls of radius x/2 around them
    are disjoint and lie in the ball of radius B + x/2. For matrices (‖W‖ ≤ B), for tables in the
    norm of their longest row, and for vectors in any norm.

    >>> round(float(count_cover(64, math.log(1.0), math.log(0.1))), 9)
    194.849436014
    """
    ratio = np.subtract(log_norm, log_resolution, dtype=np.float64)
    return np.asarray(parameters, dtype=np.float64) * log1pexp(_LOG_2 + ratio)


def log_count_cover(parameters: float, log_norm: ArrayLike, log_resolution: ArrayLike) -> Any:
    """log of `count_cover`, also where that is more than a float holds; −∞ where nothing moves.

    >>> round(math.exp(log_count_cover(6, math.log(3.0), math.log(0.5))), 9) == round(
    ...     6 * math.log(13), 9)
    True
    """
    with np.errstate(divide="ignore"):
        return log_of(parameters) + np.log(count_cover(1, log_norm, log_resolution))
