"""What is found out about a network, as plain data."""

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.check import finite_or_none
from finetti.bounds.value import BoundValue
from finetti.core.numerics.extremes import largest_of

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
    """What is known of ALL 2^T inputs."""

    error: float | None  # the largest error, relative to the largest value; None if unknown
    # why it is unknown, in half a sentence
    reason: str = ""
    # how much of it is rounding in the lookups
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
    """Why one reader, [CLS] or a gate, is right on every input, if what it reads is."""

    text: str  # what it computes
    level: int  # its block
    sparsity: int  # how many tokens it reads
    separation: float  # γ of the head with the least margin: how far apart its features are
    tolerance: float  # δ = γ/4, the noise that the lookup tolerates there
    head_error: float  # the largest distance of that head's feature from its point, over ALL inputs
    score_scale: float  # the largest R of its heads
    score_gap: float  # by how much the scores of what it reads exceed all others, at least
    attention_mass: float  # the least attention on what it should read

    @property
    def margin(self) -> float:
        """δ over the error: how many times larger it could be."""
        return math.inf if self.head_error == 0 else self.tolerance / self.head_error

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return plain_fields(self, "margin")


class NetworkEvidence(NamedTuple):
    """What a certificate says of a network's weights."""

    route: str  # the lemmas that built it
    readers: str  # which tokens read, in words
    gates: tuple[ReaderProof, ...]  # one proof per reader, [CLS] or the gates
    norms: tuple[NormBound, ...]  # every norm beside its bound
    # of the classes that the heads of each block come from, at ε = δ of its lookup
    capacities: tuple[BoundValue, ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """What one reader reads with one head."""

    reader: str  # "[CLS]", or a gate's name
    text: str  # what it computes
    head: int  # which head of its block
    places: tuple[int, ...]  # which tokens it should read: bits first, then readers
    weights: NDArray[np.float64]  # the attention on all tokens
    features: tuple[float, ...]  # what the head reads
    value: float  # what the reader says

    @property
    def rest(self) -> float:
        """The attention on everything that it should not read."""
        return largest_of(0.0, 1.0 - float(self.weights[list(self.places)].sum()))
