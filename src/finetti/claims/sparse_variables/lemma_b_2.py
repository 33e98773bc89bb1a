"""Lemma B.2: heads over fixed positions read the signs of the relevant bits."""

from finetti.claims.claim import Claim, Context, Evidence, at_most
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.boolean_cases import (
    BASES,
    random_rule,
    symmetric_rule,
    worst_certificate,
)


def embedding_evidence(context: Context, claim_id: str, embedding: str) -> Evidence:
    """Head errors and norms of random rules with this embedding, both bases, both routes."""
    rng = context.generator(claim_id)
    length = context.pick(quick=200, paper=2000)
    measurements = []
    for basis in BASES:
        for name, draw in (("symmetric", symmetric_rule), ("any", random_rule)):
            rules = [draw(rng, length, sparsity) for sparsity in (1, 2, 3, 5)]
            error, ratio, count = worst_certificate(rules, length, embedding=embedding, basis=basis)
            case = f"{name} rule, {basis} basis, {count} rules"
            measurements.append(at_most(f"head error / (γ/4): {case}", error, 1.0))
            measurements.append(at_most(f"norm / bound: {case}", ratio, 1 + ROUNDING))
    note = f"T = {length}. The error is the largest over all 2^T inputs, by the worst outside bits."
    return Evidence(tuple(measurements), note=note)


def run(context: Context) -> Evidence:
    """The head's largest error over all inputs against γ/4, and every norm against its bound."""
    return embedding_evidence(context, CLAIM.id, "deterministic")


CLAIM = Claim(
    id="S-lemma-B.2",
    title="fixed positions: one head reads the count, s heads the bits",
    statement="With W_Q = R v_[CLS]e_1ᵀ, W_K = ue_1ᵀ (u the dual vector of I), W_V = (E_0 − E_1)"
    "e_1ᵀ one head is within γ/4 of (1/s)Σ_Iχ_i, and s heads of each χ_i; "
    "‖W_Q‖ ≤ log(8T/γ)(1−(s−1)Δ)/(1−(2s−1)Δ), ‖W_K‖ ≤ √(s/(1−(s−1)Δ)), ‖W_V‖ ≤ 2, ‖W_C‖ ≤ 1.",
    paper="S",
    label="Lemma B.2",
    run=run,
)
