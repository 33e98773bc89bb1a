"""Lemma 2.2: the generalization gap from the Rademacher complexity."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_most

RATES, SIZES, DELTAS = (0.02, 0.1, 0.3, 0.5), (10, 50, 400), (0.5, 0.1, 0.01)


def run(context: Context) -> Evidence:
    """Exact failure probabilities for one function and for two opposite ones, losses in {0, 1}."""
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
                    # One function has complexity 0; with its opposite, 2·Rad only adds to this.
                    gap = np.abs(excess) if two_sided else excess
                    failed = chance[gap > allowed].sum()
                    worst[two_sided] = max(worst[two_sided], float(failed) / delta)
    return Evidence(
        (
            at_most("two-sided: largest P(gap > bound) / δ", worst[True], 1.0),
            at_most("one-sided: largest P(gap > bound) / δ", worst[False], 1.0),
        ),
        note=f"{len(RATES) * len(SIZES) * len(DELTAS)} cases, probabilities exact.",
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
)
