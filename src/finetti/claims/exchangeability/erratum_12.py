"""Erratum 12: (G.5) has R_0 where R_0² belongs."""

import math

from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, close
from finetti.claims.exchangeability.eq_g_5 import log_product


def run(context: Context) -> Evidence:
    """100 layers with norms 0.001, whose scores are large only because the tokens are long."""
    network, radius = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3), 1e4
    printed = bounds.log_product_limit(network, radius, "printed")
    derived = bounds.log_product_limit(network, radius)
    found = log_product(network, radius)
    # γ = 10⁻³, κ = R^{qk}/(ω^{qk}ω^v) = 10³ and ζ = (2·10⁻³)²·10⁻³/1.001, as printed.
    zeta = 4e-9 / 1.001
    by_hand = math.log(2e3 / zeta) + 103 * math.log1p(zeta * 1e4 * 1.001**400)
    return Evidence(
        (
            at_most("log(R_T^trans R_T)", found, printed),
            at_most("the same, as printed", log_product(network, radius, "printed"), printed),
        ),
        (
            at_most("log(R_T^trans R_T), against the corrected limit", found, derived),
            close("the printed limit by hand (log)", printed - by_hand, 1e-10),
        ),
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
