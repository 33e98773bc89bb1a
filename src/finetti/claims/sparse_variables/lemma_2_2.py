"""Lemma 2.2: the generalization gap from the Rademacher complexity."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, at_least, at_most, close

RATES, SIZES, DELTAS = (0.02, 0.1, 0.3, 0.5), (10, 50, 400), (0.5, 0.1, 0.01)
DRAWN = 3  # samples of the enumeration


def bounded_differences() -> tuple[float, float]:
    """By how much one sample can change the complexity and the largest gap, times m.

    All classes of losses {0, 1} on three points, all samples of three points, all signs.
    """
    functions = np.array(list(product((0.0, 1.0), repeat=3)))
    signs = np.array(list(product((-1.0, 1.0), repeat=DRAWN)))
    members = np.array(list(product((False, True), repeat=len(functions))))[1:]
    samples = np.array(list(product(range(3), repeat=DRAWN)))
    losses = functions[:, samples]  # function, sample, point of the sample
    outside = np.where(members, 0.0, -np.inf)[:, :, None]  # class, function

    def largest(of_function: np.ndarray) -> np.ndarray:
        return (of_function + outside).max(axis=1)

    by_sign = np.stack([largest(losses @ sign) for sign in signs])
    complexity = by_sign.mean(axis=0) / DRAWN
    gap = largest(functions.mean(axis=1)[:, None] - losses.mean(axis=2))
    apart = (samples[:, None] != samples[None]).sum(axis=2) == 1
    return tuple(  # pyright: ignore[reportReturnType]
        DRAWN * float(np.abs(each[:, :, None] - each[:, None, :])[:, apart].max())
        for each in (complexity, gap)
    )


def measure(confidence: Callable[..., float]) -> tuple[Any, ...]:
    """``confidence`` (a logarithm) against a value by hand and against McDiarmid's inequality."""
    from finetti.bounds import Sample

    complexity, gap = bounded_differences()
    # sup gap − 2·Rad changes by c/m with one sample, so that it exceeds its mean, which is at most
    # 0, by c√(log(1/δ)/2m) with probability at most δ; both sides at once: log(2/δ).
    change = gap + 2 * complexity
    least = math.inf
    for delta in DELTAS:
        sample = Sample(200, 1, delta=delta)
        for two_sided in (True, False):
            needed = change * math.sqrt(math.log((1 + two_sided) / delta) / 400)
            found = math.exp(confidence(sample, two_sided=two_sided))
            least = min(least, found / needed)
    value = math.exp(confidence(Sample(200, 1, delta=0.05), two_sided=True))
    by_hand = 0.30351730  # 3√(log 60 / 400), log 60 = 4.09434456
    return (
        close("3√(log 60 / 400) = 0.30351730, relative", value / by_hand - 1, 1e-7),
        close("change of the complexity by one sample, minus 1/2m", complexity - 0.5, 1e-12),
        close("change of the largest gap by one sample, minus 1/m", gap - 1, 1e-12),
        at_least("least confidence term / McDiarmid's with these", least, 1.0),
    )


def run(context: Context) -> Evidence:
    """The confidence term by hand and through McDiarmid's inequality, and exact probabilities.

    One sample changes the complexity by b/2m and the gap by b/m, found by enumeration: both are
    attained, and give 2b√(log(1/δ)/2m) for one side. The statement's 3b is the textbook's, and
    larger. The probabilities are those of one function, for which the complexity is 0: they cannot
    see the factor.
    """
    from scipy import stats

    from finetti.bounds import Sample
    from finetti.bounds.covering.generalization import log_confidence

    worst = {True: 0.0, False: 0.0}
    for m in SIZES:
        counts = np.arange(m + 1)
        for rate in RATES:
            chance = stats.binom.pmf(counts, m, rate)
            excess = rate - counts / m  # test minus training error
            for delta in DELTAS:
                for two_sided in worst:
                    sample = Sample(m, 1, delta=delta)
                    allowed = np.exp(log_confidence(sample, two_sided=two_sided))
                    gap = np.abs(excess) if two_sided else excess
                    failed = chance[gap > allowed].sum()
                    worst[two_sided] = max(worst[two_sided], float(failed) / delta)
    return Evidence(
        (
            *measure(log_confidence),
            at_most("two-sided: largest P(gap > bound) / δ", worst[True], 1.0),
            at_most("one-sided: largest P(gap > bound) / δ", worst[False], 1.0),
        ),
        note=f"{len(RATES) * len(SIZES) * len(DELTAS)} cases, probabilities exact.",
    )


def _a_third(context: Context) -> Evidence:
    from finetti.bounds.covering.generalization import log_confidence

    return Evidence(
        measure(lambda *args, **options: log_confidence(*args, **options) - math.log(3))
    )


CLAIM = Claim(
    id="S-lemma-2.2",
    title="training and test error differ by the complexity and a confidence term",
    statement="With probability 1 − δ, |test − training error| ≤ 2L·Rad + 3b√(log(3/δ)/2m) for all "
    "functions of a class, for an L-Lipschitz loss in an interval of length b; one-sided with "
    "log(2/δ).",
    paper="S",
    label="Lemma 2.2, A.4",
    run=run,
    controls=(Control("a third of the confidence term", _a_third),),
)
