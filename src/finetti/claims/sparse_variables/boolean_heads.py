"""Lemmas B.2–B.4: heads that read the relevant bits."""

import math
from dataclasses import replace
from itertools import product

from finetti import boolean
from finetti.boolean.arguments import BASES
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, close
from finetti.claims.perturbations import RATIO_RTOL
from finetti.claims.sparse_variables import boolean_cases as cases


def embedding_evidence(context: Context, claim_id: str, embedding: str) -> Evidence:
    """Head errors and norms of random rules with this embedding, both bases, both routes."""
    rng = context.generator(claim_id)
    length = context.pick(quick=200, paper=2000)
    measurements = []
    kinds = {"symmetric": cases.symmetric_rule, "any": cases.random_rule}
    for basis, (name, draw) in product(BASES, kinds.items()):
        rules = [draw(rng, length, sparsity) for sparsity in (1, 2, 3, 5)]
        error, ratio = cases.worst_certificate(rules, length, embedding=embedding, basis=basis)
        case = f"{name} rule, {basis} basis, {len(rules)} rules"
        measurements.append(at_most(f"head error / (γ/4): {case}", error, 1.0))
        measurements.append(at_most(f"norm / bound: {case}", ratio, 1 + RATIO_RTOL))
    note = f"T = {length}. The error is the largest over all 2^T inputs, by the worst outside bits."
    return Evidence(*measurements, note=note)


@claim(
    id="S-lemma-B.2",
    title="fixed positions: one head reads the count, s heads the bits",
    statement="With W_Q = R v_[CLS]e_1ᵀ, W_K = ue_1ᵀ (u the dual vector of I), W_V = (E_0 − E_1)"
    "e_1ᵀ one head is within γ/4 of (1/s)Σ_Iχ_i, and s heads of each χ_i; "
    "‖W_Q‖ ≤ log(8T/γ)(1−(s−1)Δ)/(1−(2s−1)Δ), ‖W_K‖ ≤ √(s/(1−(s−1)Δ)), ‖W_V‖ ≤ 2, ‖W_C‖ ≤ 1.",
)
def s_lemma_b_2(context: Context) -> Evidence:
    """The head's largest error over all inputs against γ/4, and every norm against its bound."""
    return embedding_evidence(context, s_lemma_b_2.id, "deterministic")


@claim(
    id="S-lemma-B.3",
    title="trained positions: the same with ‖Pᵀ‖_{2,1} ≤ s",
    statement="With P_i = v_1 on I and 0 elsewhere, W_K = v_1e_1ᵀ and R = log(8T/γ), one head "
    "reads (1/s)Σ_Iχ_i within γ/4; with P_i = v_{n(i)}, s heads read each χ_i; ‖Pᵀ‖_{2,1} ≤ s.",
)
def s_lemma_b_3(context: Context) -> Evidence:
    """The head's largest error over all inputs against γ/4, and every norm against its bound."""
    return embedding_evidence(context, s_lemma_b_3.id, "trained")


def _measure(eight: float = 8.0) -> Measurement:
    """The error of a head with R = log(``eight``·Ts/γ) at an orthonormal basis, written down.

    It is worst if no relevant bit is 1: [CLS], whose value is −s, has the score R, and T tokens
    whose value is 0 have the score 0. With γ = 1/s and e^R = 8Ts/γ = 8Ts² the head is then off by
    sT/(e^R + T) = s/(8s² + 1), nearly half of the γ/4 = 1/(4s) that the lemma allows.
    """
    length = 50
    worst = 0.0
    for s in (1, 2, 3, 5):
        weights = boolean.compile(boolean.And(range(s)), length, "bag").head
        scale = math.log(eight * length * s**2) / math.log(8 * length * s**2)
        head = replace(weights, query=weights.query * scale)
        found = cases.head_error(head, tuple(range(s)), scalar=True)
        worst = max(worst, abs(found / (s / (8 * s**2 + 1)) - 1))
    return close("error where it can be written down, relative", worst, 1e-9)


@claim(
    id="S-lemma-B.4",
    title="a bag of vectors: one head reads the count or the bits",
    statement="Over X = diag(b)V one head with keys u + v_[CLS] and dual vectors on the value side "
    "is within γ/4, γ = 1/s, of (r − s)/(r + 1), or of the vector of (b_i − 1)/(r + 1), with no "
    "condition between γ and Δ; ‖W_V‖ ≤ 2s, ‖W_C‖ ≤ s.",
    controls=(Control("R = log(4Ts/γ)", lambda context: Evidence(_measure(4.0))),),
)
def s_lemma_b_4(context: Context) -> Evidence:
    """The head's error against γ/4, every norm against its bound, and the error by hand.

    The lemma allows twice the error of the last, so that only this can tell R from a smaller one.
    """
    found = embedding_evidence(context, s_lemma_b_4.id, "bag")
    return Evidence(*found.measurements, _measure(), note=found.note)
