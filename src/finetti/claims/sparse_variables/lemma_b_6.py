"""Lemma B.6: any rule is exact with a vector of features."""

from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.sparse_variables.boolean_cases import random_rule
from finetti.claims.sparse_variables.lemma_b_5 import exact_evidence


def run(context: Context) -> Evidence:
    """Random truth tables with real values, every embedding, both bases."""
    return exact_evidence(context, CLAIM.id, random_rule, heads_per_bit=True)


CLAIM = Claim(
    id="S-lemma-B.6",
    title="any rule: s features and a lookup on 2^s points",
    statement="Any s-sparse function is computed exactly by s heads (one over a bag of vectors) "
    "and a lookup on 2^s points with δ = γ/4.",
    paper="S",
    label="Lemma B.6",
    run=run,
)
