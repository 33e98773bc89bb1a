"""Spearman's rank correlation with an interval, or none where there is too little to say."""

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.special import ndtri

from finetti.core.arguments import check_finite
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.core.statistics.intervals import Interval

FEWEST = 8  # pairs below which there is no interval


def rank_correlation(
    first: ArrayLike, second: ArrayLike, confidence: float = 0.95
) -> tuple[float | None, Interval | None]:
    """Spearman's ρ of two rows of numbers, and its interval.

    ``tanh(artanh ρ ± z √((1 + ρ²/2)/(n − 3)))`` (D. G. Bonett and T. A. Wright, Psychometrika 65,
    2000). At ρ = ±1 the interval ends there and begins where it would for the nearest ρ without
    ties. ρ is None where one row is constant, the interval is None below eight pairs.

    >>> value, interval = rank_correlation(range(8), [0, 1, 2, 3, 4, 5, 7, 6])
    >>> round(value, 3), round(interval.low, 2), round(interval.high, 3)
    (0.976, 0.82, 0.997)
    >>> rank_correlation([1, 2, 3], [1, 2, 4])
    (1.0, None)
    """
    owner = "rank_correlation"
    if not 0 < confidence < 1:
        raise bad_argument("confidence", owner, "in (0, 1)", confidence)
    rows = [np.asarray(each, np.float64) for each in (first, second)]
    for row, name in zip(rows, ("first", "second"), strict=True):
        check_finite(row, name, owner)
    if rows[0].ndim != 1 or rows[0].shape != rows[1].shape:
        shapes = f"shapes {rows[0].shape} and {rows[1].shape}"
        raise bad_argument("second", owner, "as many numbers as first", shapes)
    count = len(rows[0])
    if count < 2 or any(row.min() == row.max() for row in rows):
        return None, None
    ranks = [scipy.stats.rankdata(row) - (count + 1) / 2 for row in rows]
    value = float(ranks[0] @ ranks[1] / math.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
    value = smallest_of(1.0, largest_of(-1.0, value))
    if count < FEWEST:
        return value, None
    limit = 1 - 6 / (count * (count**2 - 1))
    inner = smallest_of(limit, largest_of(-limit, value))
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt((1 + inner**2 / 2) / (count - 3))
    low, high = (math.tanh(math.atanh(inner) + sign * reach) for sign in (-1, 1))
    low, high = (-1.0 if value <= -limit else low), (1.0 if value >= limit else high)
    return value, Interval(low, high, confidence, "spearman")
