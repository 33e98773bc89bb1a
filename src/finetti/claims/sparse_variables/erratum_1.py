"""Erratum 1: how W_QK enters Corollary 4.4."""

import math
from typing import Any

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, within
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.instances import score_change

LENGTH = 3.0


def run(context: Context) -> Evidence:
    """Tokens ±3e₁, the query e₁, and M from 0 to t·e₁e₁ᵀ: the head's change per unit of t."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import HeadClass, MultiHeadClass
    from finetti.core.forms import Form

    change = score_change(LENGTH)
    head = HeadClass(width=3, query_norm=1.0)
    layer = MultiHeadClass(heads=(head,), width=3, query_norm=1.0)
    sample = Sample(1, 2, input_norm=LENGTH)

    def allowed(described: Any, form: Form) -> float:
        # c_QK is d times the column norm times what an error of W_QK is multiplied by.
        return math.exp(described.log_costs(head, sample, form)[1]) / head.width

    return Evidence(
        (
            at_most("change, against Corollary 4.4", change, allowed(head, "printed")),
            at_most("change, against A.12", change, allowed(layer, "printed")),
        ),
        derived=(
            within(
                "change / (B_V B_X² B_τ)", change / allowed(head, "derived"), 0.98, 1 + ROUNDING
            ),
        ),
        note="The proof of Corollary 4.4 has B_QK^∞B_VB_X², which is 9 here too: it lacks B_τ.",
    )


CLAIM = Claim(
    id="S-erratum-1",
    title="printed: W_QK's error without the lengths of tokens and query",
    statement="An error of W_QK moves a head by at most B_V B_X times that error (Corollary 4.4), "
    "or twice that (A.12).",
    paper="S",
    label="Corollary 4.4, A.12",
    run=run,
    expected=Verdict.FAILS,
    erratum="Scores grow with the token and with the query: C·B_VB_QK^∞B_X²B_τ with C = 1, where "
    "Corollary 4.4 prints B_VB_QK^∞B_X, its proof one more B_X, and A.12 a factor 2.",
)
