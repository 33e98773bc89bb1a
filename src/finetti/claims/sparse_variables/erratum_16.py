"""Erratum 16: a bump that is zero at its point, and the bound on W_1 without its biases' 2."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least, at_most


def run(context: Context) -> Evidence:
    """The bump at its point, and the largest entry of W_1 and its biases against max(1, B)/δ."""
    from finetti.boolean.heads.printed import VANISHING_SIGNS
    from finetti.boolean.network.lookup import CORNERS, SIGNS, make_lookup

    ramps = np.maximum(CORNERS, 0)  # r(z + c) at z = 0
    points, tolerance = np.array([[-1.0], [1.0]]), 0.5
    lookup = make_lookup(points, np.ones(2), tolerance)
    largest = max(np.abs(lookup.inner).max(), np.abs(lookup.inner_bias).max())
    bound = max(1.0, np.abs(points).max()) / tolerance
    return Evidence(
        (
            at_least("the bump at its point (reconstructed)", float(VANISHING_SIGNS @ ramps), 1.0),
            at_most("‖W_1‖_∞ against max(1, B)/δ", float(largest), float(bound)),
        ),
        note="The printed bump is reconstructed: the one combination of its four ramps, up to a "
        "factor, that vanishes outside and at its point. "
        f"r(z+2) − r(z+1) − r(z−1) + r(z−2) is {float(SIGNS @ ramps):g} there, and its biases "
        f"reach (B + 2δ)/δ = {float(bound) + 2:g}.",
    )


CLAIM = Claim(
    id="S-erratum-16",
    title="printed: the bump of the lookup, and its bound on W_1",
    statement="The bump of Lemma B.8 is 1 at its point, and ‖W_1‖_∞ ≤ max(1, B)/δ.",
    paper="S",
    label="Lemma B.8",
    run=run,
    expected=Verdict.FAILS,
    erratum="The printed bump is zero at its point; ψ = r(z+2) − r(z+1) − r(z−1) + r(z−2) is 1 "
    "there. The bound is max(1, B + 2δ)/δ.",
)
