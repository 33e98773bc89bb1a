"""Which vectors the positions get, and how well they tell the relevant ones from the rest."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_vectors import (
    RESERVED,
    BitPositions,
    DensePositions,
    SignPositions,
    StandardPositions,
)
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.random_keys import generator

MIN_EIGENVALUE = 1e-9  # of a Gram matrix whose vectors count as independent
MIN_GAP = 0.01  # scores must be multiplied by log(8T/γ)/gap: beyond this, float32 suffers


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the vectors v_i of the relevant positions stand to all others."""

    vectors: NDArray[np.float64]  # v_i, i ∈ I, shape (s, d)
    duals: NDArray[np.float64]  # ũ_i in the span of V_I with ⟨v_j, ũ_i⟩ = δ_ij on I, shape (s, d)
    coherence: float  # the largest |⟨v_i, v_j⟩| over i ∈ I and all j ≠ i
    # 1 − the largest score outside I of the key u = Σũ_i, which is 1 on I ([CLS] has score 0)
    joint_gap: float
    single_gap: float  # the same for the keys v_i, each 1 at its own position only
    outside: float  # the largest |⟨v_j, ũ_i⟩| and |⟨v_j, u⟩| outside I
    smallest: float  # the least eigenvalue of the Gram matrix of V_I

    @property
    def independent(self) -> bool:
        """Whether the vectors of I have dual vectors at all."""
        return self.smallest > MIN_EIGENVALUE


def measure_geometry(positions: BitPositions, indices: tuple[int, ...]) -> Geometry:
    """The geometry of I among all positions; T·s·d operations, never T²."""
    vectors = positions.rows(list(indices))
    count = len(vectors)
    if not count or isinstance(positions, StandardPositions):  # nothing to be measured
        return Geometry(vectors, vectors, 0.0, 1.0, 1.0, 0.0, 1.0)
    duals, smallest = dual_vectors(vectors)
    aside = np.ones(positions.count, dtype=bool)
    aside[list(indices)] = False
    joint = np.zeros(positions.count)
    coherence, alike, outside = 0.0, 0.0, 0.0
    step = max(1, 2**23 // positions.count)  # products of a block of vectors with all others
    for start in range(0, count, step):
        here = slice(start, start + step)
        both = positions.project(np.concatenate([vectors[here], duals[here]]).T)
        products, beside = np.split(both, 2, axis=1)
        joint += beside.sum(axis=1)
        outside = largest_of(outside, float(np.abs(beside[aside]).max(initial=0.0)))
        products[list(indices[here]), np.arange(products.shape[1])] = 0.0
        coherence = largest_of(coherence, float(np.abs(products).max()))
        alike = largest_of(alike, float(products.max()))
    others = joint[aside]
    outside = largest_of(outside, float(np.abs(others).max(initial=0.0)))
    joint_gap = 1 - largest_of(0.0, float(others.max(initial=0.0)))
    return Geometry(vectors, duals, coherence, joint_gap, 1 - alike, outside, smallest)


def automatic_width(count: int, sparsity: int) -> int:
    """d for a random basis of ``count`` vectors, before it is measured.

    Random signs of length n have products of about √(2 log(pairs)/n); with n = 8·s·log T the gap
    was 1/2 up to T = 10⁵.

    >>> automatic_width(10**5, 3)
    280
    """
    free = 8 * sparsity * math.log(max(count, 2))
    return RESERVED + max(4, math.ceil(free))


def dual_vectors(vectors: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """V(VᵀV)^{-1} of rows V, zeros if they are dependent; and the least eigenvalue of VᵀV.

    With them the scores on the rows are exactly equal whatever the coherence, where the printed
    v_I = Σv_i lets them differ (erratum 3, edelman2022).
    """
    gram = vectors @ vectors.T
    least = float(np.linalg.eigvalsh(gram)[0])
    if not least > MIN_EIGENVALUE:
        return np.zeros_like(vectors), least
    return np.linalg.solve(gram, vectors).astype(np.float64, copy=False), least


def as_vectors(basis: Any, count: int) -> BitPositions:
    """A basis of the user's own: unit vectors, one per row, shape (T, any)."""
    requirement = f'"orthonormal", "random", or {count} unit vectors as rows'
    try:
        array = np.asarray(basis, dtype=np.float64)
    except (TypeError, ValueError) as error:  # words, or rows of several lengths
        raise bad_argument("basis", "compile_rule", requirement, type(basis).__name__) from error
    if array.ndim != 2 or len(array) != count or not array.size:
        raise bad_argument("basis", "compile_rule", requirement, f"shape {array.shape}")
    if not np.allclose(np.linalg.norm(array, axis=1), 1.0, rtol=0, atol=1e-6):
        raise bad_argument("basis", "compile_rule", requirement, "vectors of other lengths")
    return DensePositions(np.concatenate([np.zeros((count, RESERVED)), array], axis=1))


def draw_basis(basis: str, count: int, width: int, seed: int) -> BitPositions:
    """T vectors of one kind in dimension d; the signs depend on T, d and the seed only."""
    if basis == "orthonormal":
        return StandardPositions(count, width)
    return SignPositions.draw(generator("boolean basis", seed, count, width), count, width)
