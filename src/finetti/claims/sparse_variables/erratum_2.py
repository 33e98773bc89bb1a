"""Erratum 2: the printed product runs over the wrong layers."""

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.perturbations import ROUNDING, attained, holds
from finetti.claims.sparse_variables.instances import two_layers
from finetti.claims.sparse_variables.thm_a_17_chain import chain_ratios


def run(context: Context) -> Evidence:
    """Both orders on two layers without scores, and on the networks of S-thm-A.17-chain."""
    first, second, readout, tokens = two_layers()
    printed, derived = (
        lipschitz.network_perturbation(first, second, readout, readout, tokens, form)
        for form in ("printed", "derived")
    )
    ratios = chain_ratios(context)
    found = ratios["printed"]
    return Evidence(
        (
            at_most(
                "two layers: change of the output", float(printed.measured), float(printed.bound)
            ),
            at_most(f"largest ratio on {found.size} random networks", found.max(), 1 + ROUNDING),
        ),
        derived=(
            attained("two layers", derived),
            holds(ratios["derived"], "networks"),
        ),
        note=f"{np.mean(found > 1):.1%} of the random networks violate the printed order.",
    )


CLAIM = Claim(
    id="S-erratum-2",
    title="printed: the layers before a layer amplify its error",
    statement="|out − ôut| ≤ Σ_i α_i e_i + |(w − ŵ)ᵀĝ_[CLS]| with α_i = Π_{j<i} p_j and without "
    "‖w‖.",
    paper="S",
    label="Theorem A.17",
    run=run,
    expected=Verdict.FAILS,
    erratum="The recursion of Lemma A.15 multiplies the error of layer i by the layers after it, "
    "and the output by ‖w‖.",
)
