"""Erratum 9: (4 + H)D²T does not count all parameters."""

from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, close


def run(context: Context) -> Evidence:
    """Eight heads that are as wide as the tokens, d = d_σ = d_p = 64."""
    network = bounds.FullTransformer.uniform(64, 64, n_heads=8, head_dimension=64)
    printed = bounds.FullTransformerCovering(network, form="printed").n_dimensions
    derived = bounds.FullTransformerCovering(network).n_dimensions
    parameters = 2 * 64 * 64 + 8 * (3 * 64 * 64)  # A^x and A^σ; W_q, W_k and W_v of eight heads
    return Evidence(
        (at_most("parameters of the network", parameters, printed),),
        (
            close("derived dimensions − parameters", derived - parameters, 0.0),
            close("printed dimensions − (4 + 8)·64²", printed - 12 * 64 * 64, 0.0),
        ),
    )


CLAIM = Claim(
    id="E-erratum-9",
    title="printed: (4 + H)D²T dimensions for any head",
    statement="A network with H heads and D = max{d, d_σ, d_p} has at most (4 + H)D²T parameters.",
    paper="E",
    label="Lemma C.8",
    run=run,
    expected=Verdict.FAILS,
    erratum="H(2dd_p + d²) ≤ (2 + H)D² needs d_pH ≤ D, as in d = d_pH.",
)
