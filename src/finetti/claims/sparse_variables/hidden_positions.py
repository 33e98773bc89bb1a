"""Section 5: how many samples hidden positions need, as a matter of information."""

from itertools import product

import numpy as np

from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, within
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.display.card import Table
from finetti.probe.tasks.consistent_sets import exhaustive_success
from finetti.probe.tasks.hidden_rule import make_rule
from finetti.probe.tasks.information import (
    best_success,
    binary_entropy,
    information_bounds,
    success_bound,
)

RULES = ("and", "or", "parity", "x0 & ~x1")
CHANCES = ((0.5, 0.0), (0.7, 0.0), (0.5, 0.1), (0.6, 0.3))  # of a bit, of a flipped label


@claim(
    id="S-sec-5-information",
    title="no learner finds hidden positions with fewer samples",
    statement="Any learner finds the hidden function of m samples with probability at most "
    "2^m/C(T, s), and at most the packing bound, which knows the bias and the noise of the labels.",
    formula=r"P(success) ≤ \frac{2^m}{\binom{T}{s}}",
    label="Section 5",
    controls=(
        Control("index sets counted twice", changes={"factor": 0.5}),
        Control("noise counted twice", changes={"noise_share": 2.0}),
    ),
)
def s_sec_5_information(
    context: Context, factor: float = 1.0, noise_share: float = 1.0
) -> Evidence:
    """The best of all learners, by enumeration at T = 4, s = 2, over the bounds."""
    packing, counting, least = 0.0, 0.0, 1.0
    sizes = context.pick(quick=(1, 2, 3), paper=(1, 2, 3, 4))
    for name, (p, noise), m in product(RULES, CHANCES, sizes):
        rule = make_rule(name, 2, 4, bit_probability=p, label_noise=noise)
        noisier = make_rule(
            name, 2, 4, bit_probability=p, label_noise=smallest_of(noise * noise_share, 0.49)
        )
        best = best_success(rule, m)
        ratio = best / (factor * success_bound(noisier, m))
        packing, least = largest_of(packing, ratio), smallest_of(least, ratio)
        counting = largest_of(
            counting, best / (factor * (2 * (1 - noise)) ** m / rule.n_hypotheses)
        )
    return Evidence(
        at_most("best learner / packing bound", packing, 1 + 1e-12),
        at_most("best learner / (2(1 − η))^m/M", counting, 1 + 1e-12),
        at_least("smallest ratio: the packing bound is not loose", least, 0.5),
        note="AND, OR, parity and x0 & ~x1, fair and biased bits, clean and noisy labels.",
    )


@claim(
    id="S-sec-5-exhaustive",
    title="exhaustive search needs log₂ C(T, s)/h(2^{-s}) samples, to first order",
    statement="The search over all index sets finds a hidden AND of 3 bits with probability 1/2 "
    "from 0.95 to 1.35 times log₂ C(T, 3)/h(1/8) samples, h the entropy of the label.",
    formula=r"m^* ≈ \frac{log_2 \binom{T}{s}}{h(2^{-s})}",
    label="Section 5",
    false_alarm=1e-6,  # 300 trials: the curve is 5 standard errors from 1/2 at both ends
    controls=(
        Control("labels as if they were fair", changes={"p": 0.5, "lengths": (50,)}),
        Control("labels of 4 bits", changes={"p": 1 / 16, "lengths": (50,)}),
    ),
)
def s_sec_5_exhaustive(
    context: Context, p: float = 1 / 8, lengths: tuple[int, ...] = (50, 100, 200, 400)
) -> Evidence:
    """The smallest m at which one over the number of consistent sets is 1/2 in the mean."""
    rows, ratios = [], []
    for length in lengths:
        rule = make_rule("and", 3, length)
        bounds = information_bounds(rule)
        sizes = range(round(0.8 * bounds.first_order), round(1.6 * bounds.first_order))
        rng = context.draws(length)
        rates = exhaustive_success(rule, sizes, context.pick(quick=300, paper=3000), rng)
        critical = sizes[int(np.argmax(rates.mean(axis=0) >= 0.5))]
        ratios.append(critical * binary_entropy(p) / np.log2(rule.n_hypotheses))
        rows.append((length, critical, bounds.packing, bounds.first_order, ratios[-1]))
    columns = ("T", "critical m", "packing bound", "first order", "ratio")
    table = Table("AND of 3 bits by exhaustive search", columns, tuple(rows))
    growth = rows[-1][1] / rows[0][1]
    return Evidence(
        *(
            within(f"critical m / first order at T = {row[0]}", ratio, 0.95, 1.35)
            for row, ratio in zip(rows, ratios, strict=True)
        ),
        at_most("growth of critical m over all T", growth, 2.0),
        tables=(table,),
    )
