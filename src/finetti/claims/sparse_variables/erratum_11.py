"""Erratum 11: unit spectral norms do not stop a layer from amplifying."""

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.instances import balanced, layer


def run(context: Context) -> Evidence:
    """By how much one layer with ‖M‖ = ‖W_V‖ = ‖W_C‖ = 1 moves unit tokens apart."""
    # Half of the way changes values, half scores: 1 + √2 for many copies.
    matrix, before, after = balanced(1.0, step=1e-6, common=0.5**0.5)
    moved = lipschitz.attention_token_perturbation(layer(matrix), before, after)
    step = float(moved.bound) / float(lipschitz.token_constant(1.0, 1.0))
    return Evidence(
        (at_most("amplification by one layer", float(moved.measured) / step, 1 + ROUNDING),),
        note=f"Lemma A.14 allows {lipschitz.token_constant(1.0, 1.0):g} per layer "
        f"({lipschitz.token_constant(1.0, 1.0, form='printed'):g} with the printed constant).",
    )


CLAIM = Claim(
    id="S-erratum-11",
    title="printed: unit spectral norms avoid the exponential",
    statement="If all spectral norms are at most 1, a layer does not amplify a deviation of its "
    "tokens (which would spare the bound its factor exponential in the depth).",
    paper="S",
    label="Theorem 4.6",
    run=run,
    expected=Verdict.FAILS,
    erratum="With unit norms Lemma A.14 multiplies by 1 + 2C per layer, 5 as printed and 3 with "
    "the sharp C, and a layer can reach 1 + √2.",
)
