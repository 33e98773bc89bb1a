"""Every norm of the compiled weights beside the bound that its lemma gives."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.boolean.check import finite_or_none
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.core.norms import frobenius

NORM_RTOL = 1 + 1e-9


@dataclass(frozen=True)
class NormBound:
    """One norm and its bound.

    Args:
        name: of the norm, in the paper's symbols; the largest over the heads.
        value: as measured.
        bound: as the lemma gives it, derived form.
        source: the lemma, and whether its bound used the measured gap because the coherence is
            too large for the bound a priori.
    """

    name: str
    value: float
    bound: float
    source: str

    @property
    def within(self) -> bool:
        """Whether the norm keeps its bound, up to rounding."""
        return self.value <= self.bound * NORM_RTOL

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        numbers = {"value": finite_or_none(self.value), "bound": finite_or_none(self.bound)}
        return {"name": self.name, **numbers, "source": self.source, "within": self.within}


def head_norm_bounds(
    head: HeadWeights, indices: tuple[int, ...], scalar: bool, margin: float
) -> tuple[NormBound, ...]:
    """Norms of W_Q, W_K, W_V, W_C, the largest over the heads, against the embedding's lemma."""
    embedding, sparsity = head.embedding, max(1, len(indices))
    geometry = embedding.geometry(head.positions, indices, scalar)
    bounds = embedding.bounds(geometry, sparsity, scalar, head.context_length, margin)
    source = f"Lemma {embedding.lemma}" + ("" if bounds.prior else ", measured gap")
    stated = source if margin == 1 else f"{source}, margin {margin:g} as stated"
    rows = (
        ("‖W_Q‖_F", head.query, bounds.query, stated),
        ("‖W_K‖_F", head.key, bounds.key, source),
        ("‖W_V‖_F", head.value, bounds.value, source),
        ("‖W_C‖_F", head.output, bounds.output, source),
    )
    found = [
        NormBound(name, float(np.max(frobenius(matrix))), bound, said)
        for name, matrix, bound, said in rows
    ]
    extra = embedding.position_bounds(head.positions, indices)
    return (*found, *(NormBound(*row, source) for row in extra))


def lookup_norms(
    lookup: Lookup, radius: float, tolerance: float, largest: float, n_marks: int = 0
) -> tuple[NormBound, ...]:
    """Largest entries, biases included: max(1, B + 2δ)/δ, max(1, d), max|f|   (Lemma B.8).

    Args:
        lookup: the network.
        radius: B, the largest coordinate of a point.
        tolerance: δ.
        largest: max|f|.
        n_marks: rows of marks but one: of all marks a unit sees one.
    """
    inner = max(float(np.abs(lookup.inner).max()), float(np.abs(lookup.inner_bias).max()))
    bound = max(1.0, radius + 2 * tolerance) / tolerance
    found = [NormBound("‖W_1‖_∞", inner, bound, "Lemma B.8")]
    if lookup.middle is not None and lookup.middle_bias is not None:
        middle = max(float(np.abs(lookup.middle).max()), float(np.abs(lookup.middle_bias).max()))
        found.append(NormBound("‖W_2‖_∞", middle, float(len(lookup.inner) - n_marks), "Lemma B.8"))
    outer = float(np.abs(lookup.outer).max())
    return (*found, NormBound("‖w‖_∞", outer, largest, "Lemma B.8"))
