"""Errata 3, 4, 5 and 15: the heads that Lemmas B.2 and B.4 print."""

from typing import Any

import numpy as np

from finetti import boolean
from finetti.boolean.functions.base import all_bits
from finetti.boolean.printed import (
    coherent_basis,
    printed_bag_head,
    printed_mean_head,
    printed_sign_heads,
)
from finetti.claims.claim import Context, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most
from finetti.claims.sparse_variables.boolean_cases import THREE, head_error
from finetti.show.card import Table


@claim(
    id="S-erratum-3",
    title="printed: the key v_I = Σv_i for Δ < 1/s",
    statement="With the key Σ_Iv_i and R = log(8T/γ)/(1 − sΔ) the head of Lemma B.2 is within γ/4 "
    "of (1/s)Σ_Iχ_i whenever Δ < 1/s.",
    label="Lemma B.2",
    erratum="Scores on I differ by up to 2(s−1)Δ·R. The dual vector V_I(V_IᵀV_I)^{-1}1 makes them "
    "equal; its gap is at least (1−(2s−1)Δ)/(1−(s−1)Δ).",
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
        error = head_error(repaired.head, places, scalar=True)
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
    label="Lemma B.2, s heads",
    erratum="e_2ᵀe_1 = 0: the output is zero for every input. Both must be e_1.",
)
def s_erratum_4(context: Context) -> Evidence:
    """How far apart the features of different settings are, over all inputs of ten bits."""
    any_rule = boolean.TruthTable(THREE, [0, 1, 2, 3, 4, 5, 6, 7])
    return Evidence(
        _injectivity(printed_sign_heads(10, THREE), 10),
        derived=(_injectivity(boolean.compile(any_rule, 10).head, 10),),
        note="W_V writes e_2 and W_C reads e_1. S-lemma-B.2 has e_1 in both.",
    )


@claim(
    id="S-erratum-5",
    title="printed: over a bag γ > sΔ is enough",
    statement="With keys Σ_Iv_i + v_[CLS] and values v_i the head of Lemma B.4 is within γ/4 of "
    "g_I whenever γ > sΔ.",
    label="Lemma B.4",
    erratum="Not even γ > 4sΔ suffices. Dual vectors do, for any γ. The tokens are diag(b)V, and "
    "g_I(r) = (r − s)/(r + 1), which lost its denominator.",
)
def s_erratum_5(context: Context) -> Evidence:
    """The printed head's largest error at Δ = .01, where γ > 4sΔ, against γ/4."""
    length, coherence, places, separation = 10, 0.01, (0, 1, 2), 1 / 3
    vectors = coherent_basis(length, coherence, (1, 1, 1))
    printed = head_error(printed_bag_head(vectors, 3, coherence), places, scalar=True)
    repaired = boolean.compile(boolean.And(places), length, "bag", vectors)
    derived = head_error(repaired.head, places, scalar=True)
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
    label="Lemma B.2",
    erratum="It is 1 − 2r/s: 2/s-strictly decreasing.",
)
def s_erratum_15(context: Context) -> Evidence:
    """The least step of the compiled head's feature from r to r + 1 ones."""
    sparsity, length = 3, 10
    tables = boolean.compile(boolean.Majority(range(sparsity)), length).head.tables
    settings = np.zeros((sparsity + 1, length), dtype=np.uint8)
    settings[:, :sparsity] = all_bits(sparsity)[2 ** np.arange(sparsity + 1) - 1]
    steps = np.diff(tables.features(tables.sums(settings))[:, 0])
    # Steps of −2/s, and a head that may be off by γ/4 = 1/2s at both ends.
    return Evidence(
        at_least("least step from r to r + 1 ones", steps.min(), 0.0),
        derived=(at_most("largest step from r to r + 1 ones", steps.max(), -1 / sparsity),),
        note="(1/s)Σ_Iχ_i = 1 − 2r/s with χ_i = 1 − 2b_i. The lookup does not mind.",
    )
