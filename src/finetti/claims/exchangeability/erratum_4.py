"""Erratum 4: the constant of Proposition 4.2."""

from finetti import attention
from finetti.claims.claim import Claim, Context, Evidence, Verdict, close
from finetti.claims.exchangeability.prop_4_2 import density_mean_error


def run(context: Context) -> Evidence:
    """The identity of Proposition 4.2 with the printed constant 1/(C₀C₁), and with 1/C₁."""
    constants = attention.sphere_constants(3)
    printed, derived = (
        density_mean_error(context, CLAIM.id, 3, 1 / constant)
        for constant in (constants.c0 * constants.c1, constants.c1)
    )
    return Evidence(
        (close("d = 3: attn_SM − (1/(C₀C₁)) ∫ v p̂(v|q) dv", printed, 1e-10),),
        (close("d = 3: attn_SM − (1/C₁) ∫ v p̂(v|q) dv", derived, 1e-10),),
        note="A density-normalized value kernel needs C₀/C₁.",
    )


CLAIM = Claim(
    id="E-erratum-4",
    title="printed: the constant is 1/(C₀C₁)",
    statement="attn_SM(q, K, V) = C ∫ v p̂(v|q) dv with p̂ of (4.11) and C = 1/(C₀C₁).",
    paper="E",
    label="Proposition 4.2",
    run=run,
    expected=Verdict.FAILS,
    erratum="With (4.11) as printed C = 1/C₁; with p̂ normalized to a density C = C₀/C₁. The "
    "printed constant fits only if C₀ denotes the normalizer 1/∫K.",
)
