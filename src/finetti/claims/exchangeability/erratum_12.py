"""Erratum 12: (G.5) has R_0 where R_0² belongs."""

from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.exchangeability.eq_g_5 import log_product


def run(context: Context) -> Evidence:
    """100 layers with norms 0.001, whose scores are large only because the tokens are long."""
    network, radius = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3), 1e4
    printed = bounds.log_product_limit(network, radius, "printed")
    derived = bounds.log_product_limit(network, radius)
    found = log_product(network, radius)
    return Evidence(
        (at_most("log(R_T^trans R_T)", found, printed),),
        (at_most("log(R_T^trans R_T), against the corrected limit", found, derived),),
    )


CLAIM = Claim(
    id="E-erratum-12",
    title="printed: (G.5) with R_0 for R_0²",
    statement="R_T^trans R_T ≤ (2κ/ζ)(1 + ζR_0(1+γ)^{4T})^{T+3}.",
    paper="E",
    label="(G.5)",
    run=run,
    expected=Verdict.FAILS,
    erratum="ρ̃_t/ω̃_t ≤ 1 + ζ(α̃_tR_t)², so R_0² belongs there and κ/√ζ in front. Theorem C.4 keeps "
    "its order.",
)
