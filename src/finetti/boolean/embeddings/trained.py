"""Lemma B.3: X = E_b + P with trained positions: the relevant ones share a vector (or have one
each) and all others have none, so that nothing depends on a basis of T vectors."""

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.deterministic import Deterministic
from finetti.boolean.embeddings.position_geometry import Geometry, measure_geometry
from finetti.boolean.embeddings.position_vectors import (
    BitPositions,
    DensePositions,
    Indices,
    SparsePositions,
)
from finetti.boolean.embeddings.token_embedding import Relevant


class Trained(Deterministic):
    """Tokens e_b + P_t, P zero but on the relevant bits."""

    name, lemma, marks_relevant = "trained", "B.3", True

    def n_vectors(self, context_length: int, sparsity: int, scalar: bool) -> int:
        """One for all of I, or one each."""
        return 1 if scalar else sparsity

    def place(self, vectors: BitPositions, context_length: int, indices: Indices) -> BitPositions:
        """The vectors at I, one for all if there is one only."""
        marks = vectors.rows(slice(None))
        if len(marks) == 1:
            marks = np.repeat(marks, len(indices), axis=0)
        return SparsePositions(context_length, indices, marks)

    def geometry(self, positions: BitPositions, indices: Indices, scalar: bool) -> Geometry:
        """Of the vectors that were chosen, among themselves."""
        marks = positions.rows(list(indices[:1] if scalar else indices))
        return measure_geometry(DensePositions(marks), tuple(range(len(marks))))

    def keys(self, relevant: Relevant) -> tuple[NDArray[np.float64], float]:
        """The vector that all of I has, or one each."""
        vectors = relevant.geometry.vectors
        return vectors[:1] if relevant.scalar else vectors, relevant.geometry.single_gap

    def position_bounds(
        self, positions: BitPositions, indices: Indices
    ) -> tuple[tuple[str, float, float], ...]:
        """‖Pᵀ‖_{2,1} ≤ s."""
        lengths = np.linalg.norm(positions.rows(list(indices)), axis=1)
        return (("‖Pᵀ‖_{2,1}", float(lengths.sum()), float(len(indices))),)


EMBEDDING = Trained()
