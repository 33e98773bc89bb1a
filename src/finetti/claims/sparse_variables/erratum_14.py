"""Erratum 14: without x_i > 0 there is nothing to minimize."""

import math

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least, within


def run(context: Context) -> Evidence:
    """1/x₁² + 1/x₂² where x₁ + x₂ = 1, at (1000, −999) and at positive shares, against 8."""
    from finetti.bounds.covering.allocation import allocate

    least = math.exp(allocate([0.0, 0.0], [0.0, 0.0])[0])  # γ³/C² = 2³
    shares = np.linspace(0, 1, 10_001)[1:-1]
    positive = (1 / shares**2 + 1 / (1 - shares) ** 2).min()
    return Evidence(
        (at_least("value at (1000, −999)", 1 / 1000**2 + 1 / 999**2, least),),
        derived=(within("least value at positive shares / 8", positive / least, 1 - 1e-9, 1.001),),
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
