"""Losses that remember the sample: where the complexity term of a gap is used up.

Every loss is 0 on finitely many points and 1 elsewhere. Points are drawn from a continuous law, so
that the one which is 0 on the sample has training error 0 and test error 1.
"""

import math
from itertools import product

from finetti.bounds import Sample
from finetti.bounds.covering.dudley import gap_terms

_POINTS = 8  # of the enumeration
_SAMPLES = 10**6


def complexity() -> float:
    """Their Rademacher complexity: points with the sign −1 are remembered, the others are not.

    >>> complexity()
    0.5
    """
    signs = list(product((-1, 1), repeat=_POINTS))
    return sum(sum(sign > 0 for sign in row) for row in signs) / (_POINTS * len(signs))


def used(rademacher: float, *, two_sided: bool) -> float:
    """Their gap, which is 1 on every sample, over the bound for a class of this complexity."""
    sample = Sample(_SAMPLES, 1, delta=0.05)
    return math.exp(-gap_terms(math.log(rademacher), sample, two_sided=two_sided)[0])


def half() -> float:
    """For controls: the bound with Rad in the place of 2·Rad."""
    return complexity() / 2
