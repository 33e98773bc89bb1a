"""What is found out about a network, as plain data."""

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import finite_or_none
from finetti.bounds.value import BoundValue

NORM_RTOL = 1 + 1e-9


def plain_fields(owner: Any, *more: str) -> dict[str, Any]:
    """The fields of a dataclass, and properties of it, as plain data for JSON."""
    values = {name: getattr(owner, name) for name in (*(f.name for f in fields(owner)), *more)}
    return {
        name: finite_or_none(value) if isinstance(value, float) else value
        for name, value in values.items()
    }


@dataclass(frozen=True)
class InputBound:
    """What is known of ALL 2^T inputs.

    Args:
        error: the largest error, relative to the largest value; None if unknown.
        reason: why it is unknown, in half a sentence.
        rounding: how much of it is rounding in the lookups.
    """

    error: float | None
    reason: str = ""
    rounding: float = 0.0


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
        """Plain data for JSON."""
        return plain_fields(self, "within")


@dataclass(frozen=True)
class ReaderProof:
    """Why one reader, [CLS] or a gate, is right on every input, if what it reads is.

    Args:
        text: what it computes.
        level: its block.
        sparsity: how many tokens it reads.
        separation: γ of the head with the least margin: how far apart its features are.
        tolerance: δ = γ/4, the noise that the lookup tolerates there.
        head_error: the largest distance of that head's feature from its point, over ALL inputs.
        score_scale: the largest R of its heads.
        score_gap: by how much the scores of what it reads exceed all others, at least.
        attention_mass: the least attention on what it should read.
    """

    text: str
    level: int
    sparsity: int
    separation: float
    tolerance: float
    head_error: float
    score_scale: float
    score_gap: float
    attention_mass: float

    @property
    def margin(self) -> float:
        """δ over the error: how many times larger it could be."""
        return math.inf if self.head_error == 0 else self.tolerance / self.head_error

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return plain_fields(self, "margin")


class Evidence(NamedTuple):
    """What a certificate says of a network's weights.

    Args:
        route: the lemmas that built it.
        readers: which tokens read, in words.
        gates: one proof per reader, [CLS] or the gates.
        norms: every norm beside its bound.
        capacities: of the classes that the heads of each block come from, at ε = δ of its lookup.
    """

    route: str
    readers: str
    gates: tuple[ReaderProof, ...]
    norms: tuple[NormBound, ...]
    capacities: tuple[BoundValue, ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """What one reader reads with one head.

    Args:
        reader: "[CLS]", or a gate's name.
        text: what it computes.
        head: which head of its block.
        places: which tokens it should read: bits first, then readers.
        weights: the attention on all tokens.
        features: what the head reads.
        value: what the reader says.
    """

    reader: str
    text: str
    head: int
    places: tuple[int, ...]
    weights: NDArray[np.float64]
    features: tuple[float, ...]
    value: float

    @property
    def rest(self) -> float:
        """The attention on everything that it should not read."""
        return max(0.0, 1.0 - float(self.weights[list(self.places)].sum()))
