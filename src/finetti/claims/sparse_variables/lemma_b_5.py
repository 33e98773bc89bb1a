"""Lemma B.5: symmetric rules are exact with one head."""

from typing import Any

from finetti.claims.claim import Claim, Context, Evidence, at_most, close
from finetti.claims.sparse_variables.boolean_cases import BASES, EMBEDDINGS, symmetric_rule


def exact_evidence(context: Context, claim_id: str, draw: Any, heads_per_bit: bool) -> Evidence:
    """Random rules of up to 8 bits: the largest error of the network, and its number of heads."""
    from finetti.boolean import compile

    length = context.pick(quick=200, paper=1000)
    rng = context.generator(claim_id)
    error = single = 0.0
    too_many = n_inputs = 0
    for sparsity in (1, 2, 3, 5, 8):
        for embedding in EMBEDDINGS:
            for basis in BASES:
                rule = draw(rng, length, sparsity)
                compiled = compile(rule, length, embedding, basis)
                error = max(error, compiled.check.error64)
                single = max(single, compiled.check.error32)
                n_inputs += compiled.check.n_inputs
                allowed = sparsity if heads_per_bit and embedding != "bag" else 1
                too_many += compiled.head.n_heads > allowed
    return Evidence(
        (
            close(f"largest error on {n_inputs} inputs, float64", error, 1e-9),
            at_most("networks with more heads than the lemma says", too_many, 0),
        ),
        note=f"T = {length}: all settings of the relevant bits, each with the worst outside bits. "
        f"In float32 the largest error is {single:.1g}, relative to the value itself.",
    )


def run(context: Context) -> Evidence:
    """Random functions of the number of ones, every embedding, both bases."""
    return exact_evidence(context, CLAIM.id, symmetric_rule, heads_per_bit=False)


CLAIM = Claim(
    id="S-lemma-B.5",
    title="symmetric rules: one head and a lookup on s + 1 points",
    statement="A symmetric s-sparse function is computed exactly by one head and a lookup on s + 1 "
    "points with δ = γ/4.",
    paper="S",
    label="Lemma B.5",
    run=run,
)
