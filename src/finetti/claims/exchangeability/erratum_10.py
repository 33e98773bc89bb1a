"""Erratum 10: the pretrained function's whole excess risk counts, not its class's best."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, close
from finetti.claims.exchangeability.latent_problems import revealed
from finetti.claims.exchangeability.thm_6_4 import Transfer


def run(context: Context) -> Evidence:
    """A class that contains the truth, and a pretrained function that is 0.3 away from it."""
    signs, one, zero = np.array([[1.0], [-1.0]]), np.ones((1, 1)), np.zeros((2, 1))
    problem = Transfer(revealed(), signs, signs, signs, one, one, 0.3 * signs, zero)
    printed = problem.bound(0.0)  # E_approx^PT = 0: the best of the class is exact
    whole = problem.bound(problem.world.squared(problem.pretrained_miss))
    return Evidence(
        (at_most("downstream excess risk", problem.excess, printed),),
        (
            at_most("the same, with the excess risk of the pretrained function", 0.09, whole),
            close("downstream excess risk − 0.3²", problem.excess - 0.09, 1e-12),
        ),
    )


CLAIM = Claim(
    id="E-erratum-10",
    title="printed: Theorem 6.4 with the class's approximation error",
    statement="E_approx = O(μ(E_approx^PT + ε_SSL²) + ε_g² + ε_agg²) for any pretrained function.",
    paper="E",
    label="Theorem 6.4",
    run=run,
    expected=Verdict.FAILS,
    erratum="The proof uses E‖f̂_PT − f*_PT‖² for E_approx^PT: right for the population minimizer; "
    "for a trained f̂_PT its whole excess risk belongs there.",
)
