"""Chooses positions wide enough for a head, and builds the head on them."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from finetti.boolean.basis import (
    GOOD_GAP,
    GROWTH,
    MAX_GROWTHS,
    Geometry,
    as_vectors,
    automatic_width,
    draw_basis,
    measure,
)
from finetti.boolean.heads.bag import bag_head
from finetti.boolean.heads.plan import HeadPlan, Relevant
from finetti.boolean.heads.signs import signs_head
from finetti.boolean.network.head_weights import Embedding
from finetti.boolean.network.positions import RESERVED, Positions, SparsePositions
from finetti.boolean.refusals import readable_bytes
from finetti.boolean.words import counted

LEAST_GAP = 0.01  # scores must be multiplied by log(8T/γ)/gap: beyond this, float32 suffers
SMALL = 64  # contexts short enough to keep their heads


@dataclass(frozen=True)
class Request:
    """What the positions and the head are asked for.

    Args:
        context_length: T.
        indices: I, the relevant bits.
        scalar: whether the rule is symmetric, so that a feature of the number of ones is enough.
        embedding, basis, width, coherence, margin, seed, max_bytes: as in `compile`.
    """

    context_length: int
    indices: tuple[int, ...]
    scalar: bool
    embedding: Embedding
    basis: Any
    width: int | None
    coherence: float | None
    margin: float
    seed: int
    max_bytes: int

    @property
    def own_keys(self) -> bool:
        """Whether every head looks at one position (s heads) or at all of I."""
        return self.embedding != "bag" and not self.scalar

    @property
    def n_vectors(self) -> int:
        """How many vectors must be told apart: trained positions mark the relevant ones only."""
        if self.embedding != "trained":
            return self.context_length
        return 1 if self.scalar else len(self.indices)

    @property
    def needs_duals(self) -> bool:
        """Whether one key must have the same score on all of I."""
        return not self.own_keys and self.embedding != "trained"

    def gap(self, geometry: Geometry) -> float:
        """By how much the scores of relevant positions stand out; 0 if they cannot."""
        if not self.needs_duals:
            return geometry.single_gap
        return geometry.joint_gap if geometry.independent else 0.0


def make_plan(request: Request) -> tuple[HeadPlan | None, tuple[str, ...]]:
    """The head, or the reasons why there is none."""
    if request.context_length <= SMALL and isinstance(request.basis, str):
        return _kept_plan(request)
    return _new_plan(request)


def _new_plan(request: Request) -> tuple[HeadPlan | None, tuple[str, ...]]:
    vectors, geometry, reasons = _choose_vectors(request)
    if vectors is None or geometry is None or reasons:
        return None, tuple(reasons)
    if request.embedding == "bag":
        relevant = Relevant(vectors, geometry, request.indices)
        return bag_head(relevant, request.scalar, request.margin), ()
    positions = vectors
    if request.embedding == "trained":
        marks = vectors.rows(slice(None))
        if request.scalar:
            marks = np.repeat(marks, len(request.indices), axis=0)
        positions = SparsePositions(request.context_length, request.indices, marks)
    relevant = Relevant(positions, geometry, request.indices)
    return signs_head(request.embedding, relevant, request.scalar, request.margin), ()


_kept_plan = lru_cache(maxsize=256)(_new_plan)


def _choose_vectors(request: Request) -> tuple[Positions | None, Geometry | None, list[str]]:
    """The vectors that tell positions apart, measured, or the reasons why they cannot."""
    trained, count = request.embedding == "trained", request.n_vectors
    places = tuple(range(count)) if trained else request.indices
    if not isinstance(request.basis, str):
        vectors = as_vectors(request.basis, request.context_length)
        if trained:
            chosen = request.indices[:1] if request.scalar else request.indices
            vectors = as_vectors(vectors.rows(list(chosen))[:, RESERVED:], count)
        return _judged(request, vectors, measure(vectors, places))
    if request.basis == "orthonormal":
        width = RESERVED + count if request.width is None else request.width
        if width < RESERVED + count:
            return None, None, [_too_narrow(request, width)]
        vectors = draw_basis("orthonormal", count, width, request.seed)
        return _judged(request, vectors, measure(vectors, places))
    if request.width is not None:
        if request.width <= RESERVED:
            return None, None, [_too_narrow(request, request.width)]
        return _judged(request, *_draw(request, request.width, places))
    return _grow(request, places)


def _grow(
    request: Request, places: tuple[int, ...]
) -> tuple[Positions | None, Geometry | None, list[str]]:
    """Random vectors, wider and wider until what is measured of them is good."""
    factor = 1 if request.own_keys else max(1, len(request.indices))
    width = automatic_width(request.n_vectors, factor, request.coherence)
    for last in range(MAX_GROWTHS):
        size = request.n_vectors * width / 8
        if size > request.max_bytes:
            reason = (
                f"a random basis good enough for sparsity {len(request.indices)} takes "
                f"{readable_bytes(size)}, above the budget of {readable_bytes(request.max_bytes)}; "
                'use basis="orthonormal", which needs no memory here, or raise max_bytes'
            )
            return None, None, [reason]
        vectors, geometry = _draw(request, width, places)
        close = request.coherence is None or geometry.coherence <= request.coherence
        good = close and request.gap(geometry) >= GOOD_GAP
        if good or last == MAX_GROWTHS - 1:
            return _judged(request, vectors, geometry)
        width = RESERVED + math.ceil(GROWTH * (width - RESERVED))
    raise AssertionError("MAX_GROWTHS is positive")


def _draw(request: Request, width: int, places: tuple[int, ...]) -> tuple[Positions, Geometry]:
    vectors = draw_basis("random", request.n_vectors, width, request.seed)
    return vectors, measure(vectors, places)


def _judged(
    request: Request, vectors: Positions, geometry: Geometry
) -> tuple[Positions, Geometry, list[str]]:
    """Reasons against these vectors: by the gap that was measured, not by the coherence."""
    reasons = []
    sparsity, free = len(request.indices), vectors.width - RESERVED
    if request.needs_duals and not geometry.independent:
        reasons.append(
            f"sparsity {sparsity} is more than {counted(free, 'free coordinate')} can tell "
            "apart: the vectors of the relevant positions are linearly dependent; choose a larger "
            "width"
        )
    elif request.gap(geometry) < LEAST_GAP:
        reasons.append(
            f"sparsity {sparsity} is above what width {vectors.width} allows: the scores of the "
            f"relevant positions exceed the others by {request.gap(geometry):.3g} of their size "
            f"(needed: {LEAST_GAP}) at a coherence of {geometry.coherence:.3g}; leave width free, "
            "or choose a larger one"
        )
    if request.coherence is not None and geometry.coherence > request.coherence:
        reasons.append(
            f"the vectors of the relevant positions have coherence {geometry.coherence:.3g}, above "
            f"the {request.coherence:.3g} asked for; leave width free, or choose a larger one"
        )
    return vectors, geometry, reasons


def _too_narrow(request: Request, width: int) -> str:
    if request.basis == "orthonormal":
        least = RESERVED + request.n_vectors
        return (
            f"width {width} is too small for {request.n_vectors} orthonormal vectors beside e_0, "
            f'e_1 and v_[CLS]: at least {least}, or basis="random"'
        )
    return f"width {width} leaves no room beside e_0, e_1 and v_[CLS]: at least {RESERVED + 1}"
