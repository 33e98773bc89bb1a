"""Lemma B.4: one head over a bag of vectors."""

from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.sparse_variables.lemma_b_2 import embedding_evidence


def run(context: Context) -> Evidence:
    """The head's largest error over all inputs against γ/4, and every norm against its bound."""
    return embedding_evidence(context, CLAIM.id, "bag")


CLAIM = Claim(
    id="S-lemma-B.4",
    title="a bag of vectors: one head reads the count or the bits",
    statement="Over X = diag(b)V one head with keys u + v_[CLS] and dual vectors on the value side "
    "is within γ/4, γ = 1/s, of (r − s)/(r + 1), or of the vector of (b_i − 1)/(r + 1), with no "
    "condition between γ and Δ; ‖W_V‖ ≤ 2s, ‖W_C‖ ≤ s.",
    paper="S",
    label="Lemma B.4",
    run=run,
)
