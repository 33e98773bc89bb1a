"""Erratum 4: the printed weights of s heads multiply to zero."""

from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Measurement, Verdict, at_least
from finetti.claims.sparse_variables.boolean_cases import THREE

LENGTH = 10


def injectivity(weights: Any) -> Measurement:
    """How far apart features of inputs with different b_I are; γ = 2, less γ/4 on both sides."""
    from finetti.boolean.functions.base import all_bits

    features = weights.tables.all_features
    settings = all_bits(LENGTH)[:, list(THREE)] @ (1, 2, 4)
    low, high = (
        np.stack([extreme(features[settings == each], axis=0) for each in range(8)])
        for extreme in (np.min, np.max)
    )
    # Two boxes of features are apart by the largest gap between them in any coordinate.
    apart = np.maximum(low[:, None] - high[None], low[None] - high[:, None]).max(axis=2)
    least = apart[~np.eye(8, dtype=bool)].min()
    return at_least("least distance of features with different b_I", float(least), 1.0)


def run(context: Context) -> Evidence:
    """How far apart the features of different settings are, over all inputs of ten bits."""
    from finetti.boolean import TruthTable, compile
    from finetti.boolean.embeddings.printed import printed_sign_heads

    any_rule = TruthTable(THREE, [0, 1, 2, 3, 4, 5, 6, 7])
    return Evidence(
        (injectivity(printed_sign_heads(LENGTH, THREE)),),
        derived=(injectivity(compile(any_rule, LENGTH).head),),
        note="W_V writes e_2 and W_C reads e_1. S-lemma-B.2 has e_1 in both.",
    )


CLAIM = Claim(
    id="S-erratum-4",
    title="printed: W_V with e_2, W_C with e_1",
    statement="With W_V = (E_0 − E_1)e_2ᵀ and W_C^h = e_1e_hᵀ the s heads of Lemma B.2 are "
    "2-injective.",
    paper="S",
    label="Lemma B.2, s heads",
    run=run,
    expected=Verdict.FAILS,
    erratum="e_2ᵀe_1 = 0: the output is zero for every input. Both must be e_1.",
)
