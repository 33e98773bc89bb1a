"""Lemmas B.2 and B.3: heads over X = E_b + P that read the signs χ_i = 1 − 2b_i.

One head reads (1/s)Σ_Iχ_i, s heads read each χ_i by itself. Lemma B.2 takes positions as they are;
Lemma B.3 trains them, so that the relevant ones share a vector (or have one each) and all others
have none: then nothing depends on a basis of T vectors.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.heads.plan import (
    ONE_BIT,
    ZERO_BIT,
    HeadPlan,
    Relevant,
    build_weights,
    score_scale,
    unit,
)


def signs_head(
    embedding: Literal["deterministic", "trained"], relevant: Relevant, scalar: bool, margin: float
) -> HeadPlan:
    """W_Q = R v_[CLS]e_1ᵀ, W_K = ue_1ᵀ, W_V = (E_0 − E_1)e_1ᵀ, W_C = e_1e_1ᵀ   (Lemma B.2).

    One head: u is the dual vector of I, so that scores on I are R exactly (erratum 3). Head h of s
    heads: u = v_{i_h}, W_C^h = e_1e_hᵀ (erratum 4: print multiplies e_2 with e_1, which is zero).

    Args:
        embedding: whose lemma is meant.
        relevant: I among the positions P.
        scalar: one head or s heads.
        margin: divides the error that attention may make.
    """
    positions, geometry, indices = relevant.positions, relevant.geometry, relevant.indices
    sparsity, width = len(indices), positions.width
    single = scalar or sparsity == 0
    if single and embedding == "trained":
        keys, gap = geometry.vectors[:1], geometry.single_gap  # all of I has the same vector
    elif single:
        keys, gap = geometry.duals.sum(axis=0)[None], geometry.joint_gap
    else:
        keys, gap = geometry.vectors, geometry.single_gap
    bits = unit(width, ZERO_BIT) - unit(width, ONE_BIT)
    if sparsity == 0:  # a constant: nothing is read
        keys, bits = np.zeros((1, width)), np.zeros(width)
    separation = 2 / sparsity if single and sparsity else 2.0
    scale = score_scale(positions.count, separation, margin, gap)
    values = np.broadcast_to(bits, keys.shape)[:, :, None].copy()
    output: NDArray[np.float64] = np.eye(len(keys))[:, None, :]
    weights = build_weights(embedding, positions, keys, values, output, scale)
    lemma = "B.2" if embedding == "deterministic" else "B.3"
    return HeadPlan(weights, indices, single, separation, scale, gap, geometry, lemma)
