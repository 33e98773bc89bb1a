"""Erratum 12: the printed closed form of Dudley's integral changes its sign."""

import math

from finetti.claims.claim import (
    Claim,
    Context,
    Evidence,
    Verdict,
    at_least,
    at_most,
    close,
    within,
)

WIDTH, LENGTH, SAMPLES, MANY = 64, 400, 200, 10**12


def run(context: Context) -> Evidence:
    """The printed form for one head of width 64 with spectral norms 1, and how it moves with m."""
    from finetti.bounds import Sample
    from finetti.bounds.covering.dudley import dudley_closed, dudley_printed
    from finetti.bounds.sparse_variables import MultiHeadClass, SoftmaxHeadNorms

    # Spread over all columns, a matrix of spectral norm 1 has columns of length 1/√d.
    column = WIDTH**-0.5
    heads = (SoftmaxHeadNorms(value_column_norm=column, score_row_norm=column),)
    layer = MultiHeadClass(heads=heads, width=WIDTH)

    def constant(samples: int) -> float:
        log_points = math.log(math.log(samples * LENGTH))
        sample = Sample(samples, LENGTH)
        return layer.composition(sample, "printed").log_scaling(0.0, log_points)

    few, more = (dudley_printed(constant(m), 0.0, math.log(m)) for m in (SAMPLES, 2 * SAMPLES))
    derived = [
        math.exp(dudley_closed(constant(m), 0.0, math.log(m))) for m in (SAMPLES, 2 * SAMPLES, MANY)
    ]
    # At m = 10¹² x = √(m/C_F) is large enough for the closed form itself.
    x = math.exp((math.log(MANY) - constant(MANY)) / 2)
    by_hand = 12 * (1 + math.log(x / 3)) / x
    return Evidence(
        (
            at_least("complexity at T = 400, m = 200", few, 0.0),
            at_most("complexity at m = 400 minus that at m = 200", more - few, 0.0),
        ),
        derived=(
            close("complexity at m = 200, minus the largest output", derived[0] - 1, 1e-12),
            at_most("complexity at m = 400 minus that at m = 200", derived[1] - derived[0], 0.0),
            close(
                "complexity at m = 10¹², relative to 12(1 + log(x/3))/x",
                derived[2] / by_hand - 1,
                1e-12,
            ),
            within("the same", derived[2], 0.0, 1.0),
        ),
        note="The derived form gives the largest output: 200 and 400 samples are too few.",
    )


CLAIM = Claim(
    id="S-erratum-12",
    title="printed: Dudley's integral in closed form",
    statement="A class with log N_∞(ε) ≤ C_F/ε² has a Rademacher complexity of at most "
    "c√(C_F/m)(1 + log(A√(m/C_F))), which is positive and falls with m.",
    paper="S",
    label="A.3",
    run=run,
    expected=Verdict.FAILS,
    erratum="With x = A√(m/C_F) the printed form is negative for x < 1/e and grows with m for "
    "x < 1. Derived: A·min(1, 12(1 + log(x/3))/x) for x ≥ 3, else A.",
)
