"""Erratum 14: without x_i > 0 there is nothing to minimize."""

import math

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least


def run(context: Context) -> Evidence:
    """1/x₁² + 1/x₂² at x = (1000, −999), where x₁ + x₂ = 1, against γ³/C² = 8."""
    from finetti.bounds.covering.allocation import allocate

    least, _ = allocate([0.0, 0.0], [0.0, 0.0])
    value = 1 / 1000**2 + 1 / 999**2
    return Evidence(
        (at_least("value at (1000, −999)", value, math.exp(least)),),
        note="With x_i > 0 the lemma holds: S-lemma-A.8.",
    )


CLAIM = Claim(
    id="S-erratum-14",
    title="printed: the least cost of any shares",
    statement="Σ α_i/x_i² ≥ γ³/C² for all x with Σ β_i x_i = C.",
    paper="S",
    label="Lemma A.8",
    run=run,
    expected=Verdict.FAILS,
    erratum="The shares must be positive; with large shares of both signs the sum tends to 0.",
)
