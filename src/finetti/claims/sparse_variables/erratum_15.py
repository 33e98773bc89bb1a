"""Erratum 15: the function of Lemma B.2 decreases in the number of ones."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least, at_most

LENGTH, SPARSITY = 10, 3


def run(context: Context) -> Evidence:
    """The least step of the compiled head's feature from r to r + 1 ones."""
    from finetti.boolean import Majority, compile
    from finetti.boolean.functions.base import all_bits

    compiled = compile(Majority(range(SPARSITY)), LENGTH)
    settings = np.zeros((SPARSITY + 1, LENGTH), dtype=np.uint8)
    settings[:, :SPARSITY] = all_bits(SPARSITY)[2 ** np.arange(SPARSITY + 1) - 1]
    features = compiled.head.tables.features(compiled.head.tables.sums(settings))[:, 0]
    steps = np.diff(features)
    # Steps of −2/s, and a head that may be off by γ/4 = 1/2s at both ends.
    return Evidence(
        (at_least("least step from r to r + 1 ones", float(steps.min()), 0.0),),
        derived=(at_most("largest step from r to r + 1 ones", float(steps.max()), -1 / SPARSITY),),
        note="(1/s)Σ_Iχ_i = 1 − 2r/s with χ_i = 1 − 2b_i. The lookup does not mind.",
    )


CLAIM = Claim(
    id="S-erratum-15",
    title="printed: B.2's function increases in r",
    statement="(1/s)Σ_Iχ_i, χ_i = +1 if b_i = 0 and −1 if b_i = 1, increases in r = Σ_Ib_i.",
    paper="S",
    label="Lemma B.2",
    run=run,
    expected=Verdict.FAILS,
    erratum="It is 1 − 2r/s: 2/s-strictly decreasing.",
)
