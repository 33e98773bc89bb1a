"""Lemma B.4: one head over the bag of vectors X = diag(b)V, which has no order.

A bit that is 0 leaves no token, so the head compares with [CLS]: attention is uniform over [CLS]
and the r relevant tokens that are there, and reads (r − s)/(r + 1), or its vector.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings import token_embedding as base
from finetti.boolean.embeddings.token_embedding import CLS, Embedding, Relevant, unit
from finetti.core.numerics.extremes import smallest_of


class Bag(Embedding):
    """Tokens b_t v_t."""

    name, lemma, token_norm, single_head = "bag", "B.4", 1.0, True
    no_gates = (
        "a bag of vectors has no token for a bit that is 0, so that what its head reads depends on "
        "the number of ones, and gates, whose tokens are always there, cannot stand beside its "
        'bits; use embedding="deterministic" or "trained"'
    )

    def token_vectors(self, width: int) -> NDArray[np.float64]:
        """Zeros: a bit has no vector of its own."""
        return np.zeros((2, width))

    def embed(self, bits: Any, tokens: Any, vectors: Any) -> Any:
        """diag(b)V."""
        return bits.astype(vectors.dtype)[..., None] * vectors

    def bit_values(
        self, places: NDArray[Any], tokens: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Nothing at all where the bit is 0."""
        return np.zeros_like(places), places

    def separation(self, sparsity: int, scalar: bool) -> float:
        """γ = 1/s."""
        return 1 / max(sparsity, 1)

    def by_count(self, sparsity: int) -> NDArray[np.float64]:
        """(r − s)/(r + 1)."""
        counts = np.arange(sparsity + 1)
        return (counts - sparsity) / (counts + 1)

    def by_setting(self, settings: NDArray[np.uint8]) -> NDArray[np.float64]:
        """(b_i − 1)/(r + 1)."""
        bits = settings.astype(np.float64)
        return (bits - 1) / (bits.sum(axis=1, keepdims=True) + 1)

    def n_levels(self, sparsity: int) -> int:
        """0, or −1/(r + 1)."""
        return sparsity + 1

    def head(self, relevant: Relevant, margin: float) -> base.HeadMatrices:
        """W_K = (u + v_[CLS])e_1ᵀ, W_V = Σ_I(ũ_i − v_[CLS])e_{n(i)}ᵀ, W_C = Σ_Ie_{n(i)}e_1ᵀ or I.

        The dual vectors ũ_i read a relevant token as exactly e_{n(i)} whatever the coherence
        (erratum 5: with v_i in their place neither γ > sΔ nor γ > 4sΔ is enough).
        """
        positions, geometry, sparsity = relevant.positions, relevant.geometry, len(relevant.indices)
        cls = unit(positions.width, CLS)
        keys = (geometry.duals.sum(axis=0) + cls)[None]
        values = (geometry.duals - cls).T[None] if sparsity else np.zeros((1, positions.width, 1))
        n_values = values.shape[2]
        output = np.ones((1, n_values, 1)) if relevant.scalar else np.eye(n_values)[None]
        # Tokens outside I are read with ⟨v_j, ũ_i⟩, which a coherent basis can make larger than s.
        largest = max(sparsity, 1.0, geometry.outside)
        separation = self.separation(sparsity, relevant.scalar)
        scale = base.score_scale(positions.count, separation, largest * margin, geometry.joint_gap)
        return base.make_heads(keys, values, output, scale)

    def bounds(self, relevant: Relevant, margin: float) -> base.HeadBounds:
        """‖W_Q‖ ≤ log(8Ts/γ)/gap, ‖W_K‖² ≤ ‖u‖² + 1, ‖W_V‖² ≤ ‖u‖² + s, ‖W_C‖ ≤ s."""
        geometry, sparsity = relevant.geometry, max(1, len(relevant.indices))
        least, gap, prior = base.joint_span(geometry, sparsity)
        largest = sparsity if prior else max(sparsity, geometry.outside)  # of values outside I
        separation = self.separation(sparsity, relevant.scalar)
        query = base.scale_bound(relevant.positions.count, separation, margin * largest, gap)
        span = sparsity / least
        key, value = math.sqrt(span + 1), math.sqrt(span + sparsity)
        return base.HeadBounds(query, key, value, float(sparsity), prior)

    def worst_attention(
        self, zero: NDArray[Any], one: NDArray[Any], beside: NDArray[Any], own: list[int]
    ) -> tuple[float, float, NDArray[np.float64]]:
        """With no relevant bit set, [CLS] alone."""
        others = np.maximum(zero, one)
        others[own] = zero[own]
        cls = float(beside[0])
        return cls, smallest_of(cls, float(one[own].min())), others


EMBEDDING = Bag()
