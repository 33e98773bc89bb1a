"""Maxima and minima that keep NaN."""

import math
from collections.abc import Sequence
from typing import Any


def largest_of(*values: Any) -> float:
    """The largest number, NaN if any is NaN: `max` would forget it (``max(0.0, nan)`` is 0.0).

    As for `max`, several numbers are given, or one iterable of them. Errors, ratios and bounds are
    collected with it, so that what is not a number never passes for a small one.

    >>> largest_of(0.0, math.nan), largest_of(0.5 * each for each in range(3))
    (nan, 1.0)
    """
    numbers = _floats(values)
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def smallest_of(*values: Any) -> float:
    """The smallest number, NaN if any is NaN; see `largest_of`.

    >>> smallest_of(math.inf, math.nan), smallest_of([0.5, 0.25])
    (nan, 0.25)
    """
    numbers = _floats(values)
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def _floats(values: Sequence[Any]) -> list[float]:
    return [float(each) for each in (values if len(values) > 1 else values[0])]
