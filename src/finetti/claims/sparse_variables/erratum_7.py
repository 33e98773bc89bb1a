"""Erratum 7: dividing by the length is no contraction."""

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most
from finetti.claims.perturbations import DRAWS, ROUNDING
from finetti.claims.sparse_variables.lemma_a_9 import stretched


def run(context: Context) -> Evidence:
    """The stretch of random pairs when every token is divided by its length."""
    found = stretched(context, CLAIM.id, sphere=True)
    return Evidence(
        (at_most(f"largest stretch of {DRAWS} pairs", found.max(), 1 + ROUNDING),),
        note="S-lemma-A.9 holds for the ball. Short tokens are torn apart by 1/length; LayerNorm "
        "with ε is max|gain|/√ε-Lipschitz.",
    )


CLAIM = Claim(
    id="S-erratum-7",
    title="printed: normalizing a token is a contraction",
    statement="Scaling every token to length 1 (the sphere) moves no two tokens apart.",
    paper="S",
    label="Lemma A.9",
    run=run,
    expected=Verdict.FAILS,
    erratum="Π_norm must be the projection onto the unit ball: only longer tokens are shortened.",
)
