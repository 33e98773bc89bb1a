"""Lemma B.2: X = E_b + P with positions as they are; heads read the signs χ_i = 1 − 2b_i.

One head reads (1/s)Σ_Iχ_i, s heads read each χ_i by itself.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings import token_embedding as base
from finetti.boolean.embeddings.token_embedding import ONE_BIT, ZERO_BIT, Embedding, Relevant, unit


class Deterministic(Embedding):
    """Tokens e_b + v_t."""

    name, lemma, token_norm = "deterministic", "B.2", math.sqrt(2)  # e_b ⊥ v_t

    def token_vectors(self, width: int) -> NDArray[np.float64]:
        """e_0 and e_1."""
        return np.stack([unit(width, ZERO_BIT), unit(width, ONE_BIT)])

    def embed(self, bits: Any, tokens: Any, vectors: Any) -> Any:
        """E_b + P."""
        return tokens[bits.astype(int)] + vectors

    def bit_values(
        self, places: NDArray[Any], tokens: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The position, and the token of either bit."""
        return places + tokens[0], places + tokens[1]

    def separation(self, sparsity: int, scalar: bool) -> float:
        """γ = 2/s for the mean of s signs, 2 for one."""
        return 2 / max(sparsity, 1) if scalar else 2.0

    def by_count(self, sparsity: int) -> NDArray[np.float64]:
        """(1/s)Σ_Iχ_i = 1 − 2r/s, decreasing in r (erratum 15)."""
        return 1 - 2 * np.arange(sparsity + 1) / sparsity if sparsity else np.zeros(1)

    def by_setting(self, settings: NDArray[np.uint8]) -> NDArray[np.float64]:
        """χ_i = 1 − 2b_i."""
        return 1 - 2 * settings.astype(np.float64)

    def n_levels(self, sparsity: int) -> int:
        """±1."""
        return 2

    def keys(self, relevant: Relevant) -> tuple[NDArray[np.float64], float]:
        """The keys and their gap: the dual vector of I, so that scores on I are R exactly (erratum
        3), or v_{i_h} for head h."""
        geometry = relevant.geometry
        if relevant.scalar:
            return geometry.duals.sum(axis=0)[None], geometry.joint_gap
        return geometry.vectors, geometry.single_gap

    def head(self, relevant: Relevant, margin: float) -> base.HeadMatrices:
        """W_Q = R v_[CLS]e_1ᵀ, W_K = ue_1ᵀ, W_V = (E_0 − E_1)e_1ᵀ, W_C = e_1e_1ᵀ   (Lemma B.2).

        Head h of s heads: W_C^h = e_1e_hᵀ (erratum 4: print multiplies e_2 with e_1, which is
        zero).
        """
        positions, sparsity = relevant.positions, len(relevant.indices)
        keys, gap = self.keys(relevant)
        bits = np.subtract(*self.token_vectors(positions.width))
        if sparsity == 0:  # a constant: nothing is read
            keys, bits = np.zeros((1, positions.width)), np.zeros(positions.width)
        separation = self.separation(sparsity, relevant.scalar)
        scale = base.score_scale(positions.count, separation, margin, gap)
        values = np.tile(bits, (len(keys), 1))[:, :, None]
        return base.make_heads(keys, values, np.eye(len(keys))[:, None, :], scale)

    def bounds(self, relevant: Relevant, margin: float) -> base.HeadBounds:
        """‖W_Q‖ ≤ log(8T/γ)/gap, ‖W_K‖ ≤ ‖u‖, ‖W_V‖ ≤ 2, ‖W_C‖ ≤ 1."""
        geometry, sparsity = relevant.geometry, max(1, len(relevant.indices))
        span, gap, prior = 1.0, 1 - geometry.coherence, geometry.coherence < 1
        if self.joint_key(relevant.scalar):
            least, gap, prior = base.joint_span(geometry, sparsity)
            span = sparsity / least  # bounds ‖u‖²
        separation = self.separation(sparsity, relevant.scalar)
        query = base.scale_bound(relevant.positions.count, separation, margin, gap)
        return base.HeadBounds(query, math.sqrt(span), 2.0, 1.0, prior)

    def worst_attention(
        self, zero: NDArray[Any], one: NDArray[Any], beside: NDArray[Any], own: list[int]
    ) -> tuple[float, float, NDArray[np.float64]]:
        """Every position has a token, whatever its bit."""
        meant = np.minimum(zero[own], one[own])
        others = np.maximum(zero, one)
        others[own] = 0.0
        return float(meant.sum()), float(meant.min()), np.append(others, beside)


EMBEDDING = Deterministic()
