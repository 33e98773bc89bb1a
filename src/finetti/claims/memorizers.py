"""Losses that remember the sample: where the complexity term of a gap is used up.

Every loss is 0 on finitely many points and 1 elsewhere. Points are drawn from a continuous law, so
that the one which is 0 on the sample has training error 0 and test error 1.
"""

import math
from collections.abc import Callable
from itertools import product

from finetti.bounds import Sample

_POINTS = 8  # of the enumeration
_SAMPLES = 10**6


def complexity() -> float:
    """Their Rademacher complexity: points with the sign −1 are remembered, the others are not.

    >>> complexity()
    0.5
    """
    signs = list(product((-1, 1), repeat=_POINTS))
    return sum(sum(sign > 0 for sign in row) for row in signs) / (_POINTS * len(signs))


def used(log_gap: Callable[[float, Sample], float]) -> float:
    """Their gap, which is 1 on every sample, over the bound ``log_gap(log Rad, sample)``."""
    return math.exp(-log_gap(math.log(complexity()), Sample(_SAMPLES, 1, delta=0.05)))
