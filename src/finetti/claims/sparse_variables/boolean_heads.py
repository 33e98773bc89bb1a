"""Lemmas B.2–B.4: heads that read the relevant bits, and as printed (errata 3–5 and 15)."""

import math
from itertools import product
from typing import Any

import numpy as np

from finetti import boolean
from finetti.boolean.arguments import BASES
from finetti.boolean.functions.base import all_bits
from finetti.boolean.printed import (
    coherent_basis,
    printed_bag_head,
    printed_mean_head,
    printed_sign_heads,
)
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most, close
from finetti.claims.perturbations import RATIO_RTOL
from finetti.claims.sparse_variables import boolean_cases as cases
from finetti.claims.sparse_variables.boolean_cases import THREE, head_error
from finetti.claims.wrong import dimmer
from finetti.core.numbers import largest_of
from finetti.show.card import Table


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
    formula=r"|f(b) − \frac{1}{s} Σ_{i∈I} χ_i| ≤ \frac{γ}{4},  R = log(\frac{8T}{γ}) "
    r"\frac{1−(s−1)Δ}{1−(2s−1)Δ}",
    controls=(Control("half of R", breaks={"finetti.boolean.compile": dimmer(0.5)}),),
)
def s_lemma_b_2(context: Context) -> Evidence:
    """The head's largest error over all inputs against γ/4, and every norm against its bound."""
    return embedding_evidence(context, s_lemma_b_2.id, "deterministic")


@claim(
    id="S-lemma-B.3",
    title="trained positions: the same with ‖Pᵀ‖_{2,1} ≤ s",
    statement="With P_i = v_1 on I and 0 elsewhere, W_K = v_1e_1ᵀ and R = log(8T/γ), one head "
    "reads (1/s)Σ_Iχ_i within γ/4; with P_i = v_{n(i)}, s heads read each χ_i; ‖Pᵀ‖_{2,1} ≤ s.",
    formula=r"|f(b) − \frac{1}{s} Σ_{i∈I} χ_i| ≤ \frac{γ}{4},  R = log\frac{8T}{γ},  ‖P^⊤‖_{2,1} "
    "≤ s",
    controls=(Control("half of R", breaks={"finetti.boolean.compile": dimmer(0.5)}),),
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
        weights = boolean.compile(boolean.And(range(s)), length, "bag")
        scale = math.log(eight * length * s**2) / math.log(8 * length * s**2)
        scaled = weights.changed(query=weights.blocks[0].query * scale)
        found = cases.head_error(scaled, tuple(range(s)), scalar=True)
        worst = largest_of(worst, abs(found / (s / (8 * s**2 + 1)) - 1))
    return close("error where it can be written down, relative", worst, 1e-9)


@claim(
    id="S-lemma-B.4",
    title="a bag of vectors: one head reads the count or the bits",
    statement="Over X = diag(b)V one head with keys u + v_[CLS] and dual vectors on the value side "
    "is within γ/4, γ = 1/s, of (r − s)/(r + 1), or of the vector of (b_i − 1)/(r + 1), with no "
    "condition between γ and Δ; ‖W_V‖ ≤ 2s, ‖W_C‖ ≤ s.",
    formula=r"|f(b) − \frac{r − s}{r + 1}| ≤ \frac{γ}{4},  R = log\frac{8 T s}{γ}",
    controls=(Control("R = log(4Ts/γ)", lambda context: Evidence(_measure(4.0))),),
)
def s_lemma_b_4(context: Context) -> Evidence:
    """The head's error against γ/4, every norm against its bound, and the error by hand.

    The lemma allows twice the error of the last, so that only this can tell R from a smaller one.
    """
    found = embedding_evidence(context, s_lemma_b_4.id, "bag")
    return Evidence(*found.measurements, _measure(), note=found.note)


@claim(
    id="S-erratum-3",
    title="printed: the key v_I = Σv_i for Δ < 1/s",
    statement="With the key Σ_Iv_i and R = log(8T/γ)/(1 − sΔ) the head of Lemma B.2 is within γ/4 "
    "of (1/s)Σ_Iχ_i whenever Δ < 1/s.",
    formula=r"u = V_I (V_I^⊤ V_I)^{-1} 1,  R = log(\frac{8T}{γ}) \frac{1 − (s−1)Δ}{1 − (2s−1)Δ}",
    printed=r"v_I = Σ_{i∈I} v_i,  R = \frac{log(8T/γ)}{1 − sΔ},  Δ < \frac{1}{s}",
    label="Lemma B.2",
    erratum="Scores on I differ by up to 2(s−1)Δ·R. The dual vector V_I(V_IᵀV_I)^{-1}1 makes them "
    "equal; its gap is at least (1−(2s−1)Δ)/(1−(s−1)Δ).",
    controls=(Control("half of R", breaks={"finetti.boolean.compile": dimmer(0.5)}),),
)
def s_erratum_3(context: Context) -> Evidence:
    """The printed head's largest error at Δ = .05 and .10 against γ/4, beside the repaired one."""
    length, places, allowed = 8, (0, 1, 2), 2 / 3 / 4
    rows, measurements, derived = [], [], []
    for coherence in (0.10, 0.05):
        vectors = coherent_basis(length, coherence)
        heads = [printed_mean_head(vectors, 3, coherence, boost) for boost in (1.0, 2.0)]
        errors = [head_error(weights, places, scalar=True) for weights in heads]
        repaired = boolean.compile(boolean.And(places), length, basis=vectors)
        error = head_error(repaired, places, scalar=True)
        rows.append((coherence, *errors, error, allowed))
        derived.append(at_most(f"dual vector at Δ = {coherence}", error, allowed))
        measurements.append(at_most(f"printed head at Δ = {coherence}", errors[0], allowed))
    columns = ("Δ", "printed", "printed, R doubled", "dual vector", "allowed")
    return Evidence(
        *measurements,
        derived=tuple(derived),
        note="A larger R makes it worse: the three scores are not equal, so the mixture is not "
        "uniform. S-lemma-B.2 is the repair.",
        tables=(Table(f"Largest head error, T = {length}, s = 3", columns, tuple(rows)),),
    )


def _injectivity(weights: Any, length: int) -> Measurement:
    """How far apart features of inputs with different b_I are; γ = 2, less γ/4 on both sides."""
    features = weights.tables.all_features
    settings = all_bits(length)[:, list(THREE)] @ (1, 2, 4)
    low, high = (
        np.stack([extreme(features[settings == each], axis=0) for each in range(8)])
        for extreme in (np.min, np.max)
    )
    # Two boxes of features are apart by the largest gap between them in any coordinate.
    apart = np.maximum(low[:, None] - high[None], low[None] - high[:, None]).max(axis=2)
    least = apart[~np.eye(8, dtype=bool)].min()
    return at_least("least distance of features with different b_I", least, 1.0)


@claim(
    id="S-erratum-4",
    title="printed: W_V with e_2, W_C with e_1",
    statement="With W_V = (E_0 − E_1)e_2ᵀ and W_C^h = e_1e_hᵀ the s heads of Lemma B.2 are "
    "2-injective.",
    formula="W_V = (E_0 − E_1) e_1^⊤,  W_C^h = e_1 e_h^⊤",
    printed="W_V = (E_0 − E_1) e_2^⊤,  W_C^h = e_1 e_h^⊤",
    label="Lemma B.2, s heads",
    erratum="e_2ᵀe_1 = 0: the output is zero for every input. Both must be e_1.",
    controls=(Control("a fifth of R", breaks={"finetti.boolean.compile": dimmer(0.2)}),),
)
def s_erratum_4(context: Context) -> Evidence:
    """How far apart the features of different settings are, over all inputs of ten bits."""
    any_rule = boolean.TruthTable(THREE, [0, 1, 2, 3, 4, 5, 6, 7])
    return Evidence(
        _injectivity(printed_sign_heads(10, THREE), 10),
        derived=(_injectivity(boolean.compile(any_rule, 10), 10),),
        note="W_V writes e_2 and W_C reads e_1. S-lemma-B.2 has e_1 in both.",
    )


@claim(
    id="S-erratum-5",
    title="printed: over a bag γ > sΔ is enough",
    statement="With keys Σ_Iv_i + v_[CLS] and values v_i the head of Lemma B.4 is within γ/4 of "
    "g_I whenever γ > sΔ.",
    formula=r"X = diag(b) V,  g_I(r) = \frac{r − s}{r + 1},  \text{any} γ",
    printed="X = V + diag(b),  g_I(r) = r − s,  γ > sΔ",
    label="Lemma B.4",
    erratum="Not even γ > 4sΔ suffices. Dual vectors do, for any γ. The tokens are diag(b)V, and "
    "g_I(r) = (r − s)/(r + 1), which lost its denominator.",
    controls=(Control("half of R", breaks={"finetti.boolean.compile": dimmer(0.5)}),),
)
def s_erratum_5(context: Context) -> Evidence:
    """The printed head's largest error at Δ = .01, where γ > 4sΔ, against γ/4."""
    length, coherence, places, separation = 10, 0.01, (0, 1, 2), 1 / 3
    vectors = coherent_basis(length, coherence, (1, 1, 1))
    printed = head_error(printed_bag_head(vectors, 3, coherence), places, scalar=True)
    repaired = boolean.compile(boolean.And(places), length, "bag", vectors)
    derived = head_error(repaired, places, scalar=True)
    row = (separation, 4 * 3 * coherence, printed, derived, separation / 4)
    columns = ("γ", "4sΔ", "printed", "dual vectors", "allowed")
    return Evidence(
        at_most("printed head at Δ = 0.01", printed, separation / 4),
        derived=(at_most("dual vectors at Δ = 0.01", derived, separation / 4),),
        note="Dual vectors on the key and on the value side need no condition (S-lemma-B.4).",
        tables=(Table(f"Largest head error, T = {length}, s = 3", columns, (row,)),),
    )


@claim(
    id="S-erratum-15",
    title="printed: B.2's function increases in r",
    statement="(1/s)Σ_Iχ_i, χ_i = +1 if b_i = 0 and −1 if b_i = 1, increases in r = Σ_Ib_i.",
    formula=r"\frac{1}{s} Σ_{i∈I} χ_i = 1 − \frac{2r}{s}",
    printed=r"\frac{1}{s} Σ_{i∈I} χ_i \text{increases in} r",
    label="Lemma B.2",
    erratum="It is 1 − 2r/s: 2/s-strictly decreasing.",
    controls=(Control("a fifth of R", breaks={"finetti.boolean.compile": dimmer(0.2)}),),
)
def s_erratum_15(context: Context) -> Evidence:
    """The least step of the compiled head's feature from r to r + 1 ones."""
    sparsity, length = 3, 10
    tables = boolean.compile(boolean.Majority(range(sparsity)), length).tables
    settings = np.zeros((sparsity + 1, length), dtype=np.uint8)
    settings[:, :sparsity] = all_bits(sparsity)[2 ** np.arange(sparsity + 1) - 1]
    steps = np.diff(tables.features(tables.sums(settings))[:, 0])
    # Steps of −2/s, and a head that may be off by γ/4 = 1/2s at both ends.
    return Evidence(
        at_least("least step from r to r + 1 ones", steps.min(), 0.0),
        derived=(at_most("largest step from r to r + 1 ones", steps.max(), -1 / sparsity),),
        note="(1/s)Σ_Iχ_i = 1 − 2r/s with χ_i = 1 − 2b_i. The lookup does not mind.",
    )
