"""Erratum 10: Lemma A.13 needs the square of the token length."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.sparse_variables.instances import first_axis, layer, two_tokens

STEP = 0.155


def run(context: Context) -> Evidence:
    """Two tokens of length 2 while M goes from 0 to t·e₁e₁ᵀ, per unit of t."""
    pair = layer(first_axis(0.0)), layer(first_axis(STEP))
    printed = lipschitz.attention_weight_perturbation(*pair, two_tokens(2.0), "printed")
    derived = lipschitz.attention_weight_perturbation(*pair, two_tokens(2.0))
    moved, limit = float(printed.measured) / STEP, float(printed.bound) / STEP
    return Evidence(
        (at_most("change of attention / ‖M − M̂‖", moved, limit),),
        note=f"With r² the bound is {float(derived.bound) / STEP:.3g}: S-lemma-A.13 holds.",
    )


CLAIM = Claim(
    id="S-erratum-10",
    title="printed: Lemma A.13 without the token length",
    statement="‖f(Z;W) − f(Z;Ŵ)‖ ≤ 2‖W_V‖‖(M − M̂)Zᵀ‖ + ‖(W_V − Ŵ_V)ᵀZᵀ‖ also for the tokens of "
    "the first layer, which are not normalized.",
    paper="S",
    label="Lemma A.13, Theorem A.17",
    run=run,
    expected=Verdict.FAILS,
    erratum="The scores grow with the length r of the query and the values with that of the "
    "tokens: the first term carries r², so the QK term of the first layer needs B_X³.",
)
