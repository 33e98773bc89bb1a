"""Two learners on the same data: an exact test, and what it could have seen."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from finetti.core.errors import bad_argument

SEEN = 1e-12  # of the mass of a binomial that is left out


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


def mcnemar_power(
    n_pairs: int, difference: float, discordance: float, significance: float = 0.05
) -> float:
    """P(McNemar's exact test rejects), exactly.

    Of ``n_pairs`` pairs, D ~ Binomial(n, ψ) have different outcomes, and of these
    Binomial(D, (1 + δ/ψ)/2) favor the better learner; δ = ``difference`` ≤ ψ = ``discordance``.

    >>> mcnemar_power(5, 1.0, 1.0)  # p = 2/2⁵ at best
    0.0
    >>> round(mcnemar_power(6, 1.0, 1.0), 12)
    1.0
    """
    if not 0 <= difference <= discordance <= 1:
        got = f"difference {difference} and discordance {discordance}"
        raise bad_argument("difference", "mcnemar_power", "in [0, discordance] ⊆ [0, 1]", got)
    if discordance == 0:
        return 0.0
    low, high = scipy.stats.binom.ppf([SEEN, 1 - SEEN], n_pairs, discordance)
    discordant = np.arange(max(0, int(low)), int(high) + 1)
    # The largest count of the rarer side that is still significant: 2·P(X ≤ k) ≤ significance.
    rejected = scipy.stats.binom.ppf(significance / 2, discordant, 0.5)
    rejected -= scipy.stats.binom.cdf(rejected, discordant, 0.5) > significance / 2
    favor = (1 + difference / discordance) / 2
    either = scipy.stats.binom.cdf(rejected, discordant, favor)
    either += scipy.stats.binom.cdf(rejected, discordant, 1 - favor)
    return float(
        scipy.stats.binom.pmf(discordant, n_pairs, discordance) @ np.where(rejected < 0, 0, either)
    )


@functools.lru_cache(maxsize=4096)  # cells of a grid ask the same again and again
def detectable_difference(
    n_pairs: int, discordance: float, power: float = 0.8, significance: float = 0.05
) -> float | None:
    """The smallest difference in success that McNemar's exact test sees with this power.

    None if it sees none: five pairs or fewer are never significant at 0.05.

    Args:
        n_pairs: pairs of trials.
        discordance: the share of pairs whose outcomes differ; at least the difference itself.
        power: the chance to see it.
        significance: of the test.

    >>> detectable_difference(5, 0.3) is None, round(detectable_difference(50, 0.2), 2)
    (True, 0.18)
    """
    if not 0 < power < 1:
        raise bad_argument("power", "detectable_difference", "in (0, 1)", power)

    def seen(difference: float) -> bool:
        wide = max(difference, discordance)
        return mcnemar_power(n_pairs, difference, wide, significance) >= power

    if not seen(1.0):
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


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


def normal_reach(error: float, power: float = 0.8, significance: float = 0.05) -> float:
    """The difference that a test on an estimate with this standard error sees: (z₁ + z₂)·error."""
    if not error >= 0 or math.isinf(error):
        raise bad_argument("error", "normal_reach", "a finite number ≥ 0", error)
    return float(scipy.stats.norm.ppf(1 - significance / 2) + scipy.stats.norm.ppf(power)) * error
