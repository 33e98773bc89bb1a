"""Erratum 3: the rate of Proposition 4.1 hides a power of 1/λ."""

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.exchangeability.prop_4_1 import DELTA, deviations, upper_bound
from finetti.claims.exchangeability.support import draw_support


def run(context: Context) -> Evidence:
    """How much the L^(-1/2) part of the error grows when λ falls from 0.1 to 0.001."""
    support = draw_support(context.generator(CLAIM.id, "support"))
    length, repeats, ridges = 10_000, context.pick(quick=200, paper=1000), (0.1, 0.001)
    sizes = [
        deviations(context.generator(CLAIM.id, str(ridge)), support, ridge, length, repeats).mean()
        for ridge in ridges
    ]
    factors = [support.effective_dimension(ridge) ** 0.5 / ridge for ridge in ridges]
    growth, allowed = sizes[1] / sizes[0], factors[1] / factors[0]
    return Evidence(
        (at_most("error at λ = 0.001 over error at λ = 0.1, L = 10 000", growth, 1.5),),
        (
            at_most("the same, over the growth of λ^(-1)Γ(λ)^(1/2)", growth / allowed, 1.0),
            *(
                at_most(f"error over (B.10), λ = {ridge:g}", size / limit, 1.0)
                for ridge, size in zip(ridges, sizes, strict=True)
                for limit in [upper_bound(support, ridge, length, DELTA)]
            ),
        ),
    )


CLAIM = Claim(
    id="E-erratum-3",
    title="printed: the L^(-1/2) term is free of λ",
    statement="The error is O(L^(-1/2) log(1/δ) + λ): its first part does not depend on λ.",
    paper="E",
    label="Proposition 4.1",
    run=run,
    expected=Verdict.FAILS,
    erratum="The statement hides λ^(-1)Γ(λ)^(1/2) in O(·) and leaves out the source condition that "
    "its second part needs.",
    false_alarm=1e-6,
)
