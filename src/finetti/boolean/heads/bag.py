"""Lemma B.4: one head over the bag of vectors X = diag(b)V, which has no order.

A bit that is 0 leaves no token, so the head compares with [CLS]: attention is uniform over [CLS]
and the r relevant tokens that are there, and reads (r − s)/(r + 1), or its vector.
"""

import numpy as np

from finetti.boolean.heads.plan import CLS, HeadPlan, Relevant, build_weights, score_scale, unit


def bag_head(relevant: Relevant, scalar: bool, margin: float) -> HeadPlan:
    """W_K = (u + v_[CLS])e_1ᵀ, W_V = Σ_I(ũ_i − v_[CLS])e_{n(i)}ᵀ, W_C = Σ_Ie_{n(i)}e_1ᵀ or I.

    The dual vectors ũ_i read a relevant token as exactly e_{n(i)} whatever the coherence (erratum
    5: with v_i in their place neither γ > sΔ nor γ > 4sΔ is enough).

    Args:
        relevant: I among the vectors V.
        scalar: read (r − s)/(r + 1), or the vector of (b_i − 1)/(r + 1).
        margin: divides the error that attention may make.
    """
    positions, geometry, indices = relevant.positions, relevant.geometry, relevant.indices
    sparsity = len(indices)
    cls = unit(positions.width, CLS)
    keys = (geometry.duals.sum(axis=0) + cls)[None]
    values = (geometry.duals - cls).T[None] if sparsity else np.zeros((1, positions.width, 1))
    n_values = values.shape[2]
    scalar = scalar or sparsity == 0
    output = np.ones((1, n_values, 1)) if scalar else np.eye(n_values)[None]
    separation = 1 / max(sparsity, 1)
    # Tokens outside I are read with ⟨v_j, ũ_i⟩, which a coherent basis can make larger than s.
    largest = max(sparsity, 1.0, geometry.outside)
    scale = score_scale(positions.count, separation, largest * margin, geometry.joint_gap)
    weights = build_weights("bag", positions, keys, values, output, scale)
    return HeadPlan(
        weights, indices, scalar, separation, scale, geometry.joint_gap, geometry, "B.4"
    )
