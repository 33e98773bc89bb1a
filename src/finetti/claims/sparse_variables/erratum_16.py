"""Erratum 16: a bump that is zero at its point, and the bound on W_1 without its biases' 2."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, within


def run(context: Context) -> Evidence:
    """Both bumps within δ of their point, and the entries of W_1 and its biases against a bound."""
    from finetti.boolean.embeddings.printed import printed_bump
    from finetti.boolean.network.lookup import CORNERS, SIGNS, make_lookup

    near = np.linspace(-1, 1, 21)  # z = (x − a)/δ
    printed, bump = printed_bump(near), np.maximum(near[:, None] + CORNERS, 0) @ SIGNS
    points, tolerance = np.array([[-1.0], [1.0]]), 0.5
    lookup = make_lookup(points, np.ones(2), tolerance)
    largest = max(np.abs(lookup.inner).max(), np.abs(lookup.inner_bias).max())
    radius = np.abs(points).max()
    return Evidence(
        (
            within("largest bump within δ of its point", np.abs(printed).max(), 1.0, 1.0),
            at_most("‖W_1‖_∞ against max(1, B)/δ", largest, max(1.0, radius) / tolerance),
        ),
        derived=(
            within("least bump within δ of its point", bump.min(), 1 - 1e-12, 1.0),
            within("largest bump within δ of its point", bump.max(), 1.0, 1 + 1e-12),
            at_most(
                "‖W_1‖_∞ against max(1, B + 2δ)/δ",
                largest,
                max(1.0, radius + 2 * tolerance) / tolerance,
            ),
        ),
    )


CLAIM = Claim(
    id="S-erratum-16",
    title="printed: the bump of the lookup, and its bound on W_1",
    statement="The bump ψ = r(z+2) − r(z+1) − r(2−z) + r(1−z) of Lemma B.8, z = (x − a)/δ, is 1 "
    "within δ of its point, and ‖W_1‖_∞ ≤ max(1, B)/δ.",
    paper="S",
    label="Lemma B.8",
    run=run,
    expected=Verdict.FAILS,
    erratum="Both of its steps are 1 there, and it is 0. ψ = r(z+2) − r(z+1) − r(z−1) + r(z−2) is "
    "1. The bound is max(1, B + 2δ)/δ.",
)
