"""Two learners on the same data: an exact test, and intervals of the difference of their rates."""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.core.statistics.intervals import Interval


def sign_flip_test(differences: ArrayLike) -> float:
    """Two-sided p-value of "both learners are alike", exactly.

    If they are, each difference is as likely to have the other sign: ``p = P(|Σ ± d_i| ≥ |Σ d_i|)``
    over all 2ⁿ signs, by convolution. For differences −1, 0 and 1 this is McNemar's exact test; a
    difference may also be the sum over all cells that share a seed.

    Args:
        differences: whole numbers, one per independent pair or seed.

    >>> sign_flip_test([1, 1, 1, 1, 1, 0, 0]) == 2 / 2**5
    True
    """
    values = np.asarray(differences, np.float64)
    if values.ndim != 1 or not (values == np.round(values)).all():
        raise bad_argument("differences", "sign_flip_test", "a list of whole numbers", differences)
    steps = np.abs(values[values != 0]).astype(int)
    reach = int(steps.sum())
    chance = np.ones(1)  # of the sums −k, …, k so far
    for step in steps:
        wider = np.zeros(len(chance) + 2 * step)
        wider[: len(chance)] += chance / 2
        wider[2 * step :] += chance / 2
        chance = wider
    sums = np.abs(np.arange(-reach, reach + 1))
    return float(min(1.0, chance[sums >= abs(int(values.sum()))].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of several tests (Holm, 1979): all of them hold at once.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * factors)
    found = np.empty(len(p_values))
    found[order] = np.minimum(adjusted, 1.0)
    return [float(round(each, 15)) for each in found]


def paired_interval(only_second: int, only_first: int, pairs: int, confidence: float) -> Interval:
    """Tango's score interval of (only_second − only_first)/pairs, widened to the exact one.

    The exact conditional interval is Clopper and Pearson's of the share θ of discordant pairs that
    favor the second, as (2θ − 1)·discordant/pairs. It is without 0 exactly where McNemar's exact
    test rejects, so that the hull of both never claims more than the test.

    >>> found = paired_interval(0, 4, 10, 0.95)  # p = 0.125
    >>> round(found.low, 2), round(found.high, 2)
    (-0.69, 0.08)
    """
    low, high = score_interval(only_second, only_first, pairs, confidence)
    discordant = only_second + only_first
    if discordant:
        share = scipy.stats.binomtest(only_second, discordant).proportion_ci(
            confidence, method="exact"
        )
        low = smallest_of(low, (2 * share.low - 1) * discordant / pairs)
        high = largest_of(high, (2 * share.high - 1) * discordant / pairs)
    return Interval(low, high, confidence, "score, widened to the exact conditional")


def score_interval(up: int, down: int, pairs: int, confidence: float) -> tuple[float, float]:
    """The differences δ that the score test of paired proportions does not reject.

    ``z(δ) = (up − down − nδ)/√(n(2q + δ(1 − δ)))``, with q the likeliest P(only the first) where
    the difference is δ: the root of ``2nq² + ((2n − up + down)δ − up − down)q − down·δ(1 − δ)``.

    Reference: Tango, Statistics in Medicine 17 (1998), 891–908.
    """
    critical = float(scipy.stats.norm.ppf((1 + confidence) / 2))

    def end(up: int, down: int) -> float:
        """The upper one; the lower one is that of exchanged learners."""

        def excess(delta: float) -> float:
            middle = -up - down + (2 * pairs - up + down) * delta
            product = down * delta * (1 - delta)
            root = math.sqrt(max(middle**2 + 8 * pairs * product, 0.0))
            q = (root - middle) / (4 * pairs)
            error = math.sqrt(max(pairs * (2 * q + delta * (1 - delta)), 0.0))
            return up - down - pairs * delta + critical * error

        estimate = (up - down) / pairs
        if excess(1.0) >= 0:
            return 1.0
        # Not from the estimate itself: where all pairs are of one kind its error is 0.
        bracket = (estimate + 1e-9, 1.0)
        return float(scipy.optimize.root_scalar(excess, bracket=bracket, xtol=1e-12).root)

    return -end(down, up), end(up, down)
