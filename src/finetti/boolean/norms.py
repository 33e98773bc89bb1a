"""Every norm of the compiled weights beside the bound that its lemma gives."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.boolean.basis import LEAST_EIGENVALUE, Geometry, measure
from finetti.boolean.check import finite_or_none
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.positions import DensePositions
from finetti.core.norms import frobenius

ROUNDING = 1 + 1e-9


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
        return self.value <= self.bound * ROUNDING

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        numbers = {"value": finite_or_none(self.value), "bound": finite_or_none(self.bound)}
        return {"name": self.name, **numbers, "source": self.source, "within": self.within}


def _geometry(head: HeadWeights, indices: tuple[int, ...], scalar: bool) -> Geometry:
    if head.embedding != "trained":
        return measure(head.positions, indices)
    marks = head.positions.rows(list(indices[:1] if scalar else indices))
    return measure(DensePositions(marks), tuple(range(len(marks))))


def head_norms(
    head: HeadWeights, indices: tuple[int, ...], scalar: bool, separation: float, margin: float
) -> tuple[NormBound, ...]:
    """Norms of W_Q, W_K, W_V, W_C against Lemmas B.2, B.3, B.4 (derived forms, edelman2022).

    With Δ < 1/(2s − 1) the dual vector obeys ‖u‖ ≤ √(s/(1 − (s−1)Δ)), and its gap is at least
    (1 − (2s−1)Δ)/(1 − (s−1)Δ); beyond that the least eigenvalue of the Gram matrix of V_I takes
    the place of 1 − (s−1)Δ, and the gap is the measured one.
    """
    sparsity = max(1, len(indices))
    geometry = _geometry(head, indices, scalar)
    delta = geometry.coherence
    bag, single = head.embedding == "bag", head.output.shape[0] == 1
    logarithm = math.log(8 * head.context_length * margin * (sparsity if bag else 1) / separation)
    joint = bag or (single and head.embedding == "deterministic")
    prior = delta < 1 / (2 * sparsity - 1) if joint else delta < 1
    if joint and prior:
        least = 1 - (sparsity - 1) * delta
        gap = (1 - (2 * sparsity - 1) * delta) / least
    elif joint:
        # Dependent vectors, in a damaged file, have no dual ones: then no R is small enough.
        gap = geometry.joint_gap if geometry.independent else 0.0
        least = max(geometry.smallest, LEAST_EIGENVALUE)
        if bag:  # values outside I may then exceed s
            logarithm += math.log(max(1.0, geometry.outside / sparsity))
    else:
        least, gap = 1.0, 1 - delta
    span = sparsity / least if joint else 1.0  # bounds ‖u‖²
    lemma = {"deterministic": "B.2", "trained": "B.3", "bag": "B.4"}[head.embedding]
    source = f"Lemma {lemma}" + ("" if prior else ", measured gap")
    rows = [
        ("‖W_Q‖_F", head.query, logarithm / gap if gap > 0 else 0.0),
        ("‖W_K‖_F", head.key, math.sqrt(span + 1) if bag else math.sqrt(span)),
        ("‖W_V‖_F", head.value, math.sqrt(sparsity / least + sparsity) if bag else 2.0),
        ("‖W_C‖_F", head.output, float(sparsity) if bag else 1.0),
    ]
    stated = source if margin == 1 else f"{source}, margin {margin:g} as stated"
    found = [
        NormBound(
            name,
            float(np.max(frobenius(matrix))),
            bound,
            stated if matrix is head.query else source,
        )
        for name, matrix, bound in rows
    ]
    if head.embedding == "trained":
        lengths = np.linalg.norm(head.positions.rows(list(indices)), axis=1)
        total = float(lengths.sum())
        found.append(NormBound("‖Pᵀ‖_{2,1}", total, float(len(indices)), source))
    return tuple(found)


def lookup_norms(
    lookup: Lookup, radius: float, tolerance: float, largest: float
) -> tuple[NormBound, ...]:
    """Largest entries, biases included: max(1, B + 2δ)/δ, max(1, d), max|f|   (Lemma B.8).

    Args:
        lookup: the network.
        radius: B, the largest coordinate of a point.
        tolerance: δ.
        largest: max|f|.
    """
    inner = max(float(np.abs(lookup.inner).max()), float(np.abs(lookup.inner_bias).max()))
    bound = max(1.0, radius + 2 * tolerance) / tolerance
    found = [NormBound("‖W_1‖_∞", inner, bound, "Lemma B.8")]
    if lookup.middle is not None and lookup.middle_bias is not None:
        middle = max(float(np.abs(lookup.middle).max()), float(np.abs(lookup.middle_bias).max()))
        found.append(NormBound("‖W_2‖_∞", middle, float(len(lookup.inner)), "Lemma B.8"))
    outer = float(np.abs(lookup.outer).max())
    return (*found, NormBound("‖w‖_∞", outer, largest, "Lemma B.8"))
