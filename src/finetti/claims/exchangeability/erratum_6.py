"""Erratum 6: the heads of a layer read tokens that its feed-forward part has made longer."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, within
from finetti.claims.exchangeability.lemma_c_14 import amplified


def run(context: Context) -> Evidence:
    """A feed-forward part with α̃ = 10, then the tight instance of Lemma C.11 with ω_v = 1."""
    instance = amplified(10.0, 1e-6)
    printed = lipschitz.residual_perturbation(*instance, "printed")
    derived = lipschitz.residual_perturbation(*instance)
    return Evidence(
        (at_most("change of the tokens", float(printed.measured), float(printed.bound)),),
        # The tokens grow 5.5-fold where α̃ = 10: (11/20)³ = 0.166 of the bound.
        (within("the same over the bound with α̃_tR_t", float(derived.ratio), 0.163, 0.167),),
    )


CLAIM = Claim(
    id="E-erratum-6",
    title="printed: heads read tokens of length R_t",
    statement="The chain of Lemma C.14 with R_t in ρ̃_t and R_t^mha.",
    paper="E",
    label="(C.10), (C.11), Lemma C.14",
    run=run,
    expected=Verdict.FAILS,
    erratum="The heads of layer t read X̄_t, which is as long as α̃_tR_t; and the product in "
    "R_T^trans must start at τ = t. Both only move constants inside a logarithm of the theorem.",
)
