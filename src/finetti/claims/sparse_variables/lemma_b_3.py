"""Lemma B.3: trained positions need no basis of T vectors."""

from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.sparse_variables.lemma_b_2 import embedding_evidence


def run(context: Context) -> Evidence:
    """The head's largest error over all inputs against γ/4, and every norm against its bound."""
    return embedding_evidence(context, CLAIM.id, "trained")


CLAIM = Claim(
    id="S-lemma-B.3",
    title="trained positions: the same with ‖Pᵀ‖_{2,1} ≤ s",
    statement="With P_i = v_1 on I and 0 elsewhere, W_K = v_1e_1ᵀ and R = log(8T/γ), one head "
    "reads (1/s)Σ_Iχ_i within γ/4; with P_i = v_{n(i)}, s heads read each χ_i; ‖Pᵀ‖_{2,1} ≤ s.",
    paper="S",
    label="Lemma B.3",
    run=run,
)
