"""Chooses positions on which every gate can tell its sources from all other tokens."""

import math
from dataclasses import dataclass
from typing import Any

from finetti.boolean.basis import (
    GOOD_GAP,
    GROWTH,
    MAX_GROWTHS,
    as_vectors,
    automatic_width,
    draw_basis,
    measure,
)
from finetti.boolean.compiler import MAX_TABLES
from finetti.boolean.compose.block import Keys, Layout, level_reads, make_keys
from finetti.boolean.compose.gates import SparseGate
from finetti.boolean.network.positions import RESERVED, Positions, SparsePositions
from finetti.boolean.planning import LEAST_GAP
from finetti.boolean.refusals import readable_bytes

HEADROOM = 1.1  # dual vectors are longer than √s, so that a first guess would often just miss


@dataclass(frozen=True, eq=False)
class LayoutRequest:
    """What positions are asked for.

    Args:
        gates: the gates.
        context_length: T.
        trained: positions mark the relevant bits only (Lemma B.3).
        basis, width, coherence, seed, max_bytes: as in `compose`.
    """

    gates: tuple[SparseGate, ...]
    context_length: int
    trained: bool
    basis: Any
    width: int | None
    coherence: float | None
    seed: int
    max_bytes: int

    @property
    def relevant(self) -> tuple[int, ...]:
        """The bits that a gate reads."""
        found = {s.index for gate in self.gates for s in gate.sources if not s.is_gate}
        return tuple(sorted(found))

    @property
    def n_vectors(self) -> int:
        """How many vectors must be told apart."""
        return len(self.relevant) if self.trained else self.context_length


@dataclass(frozen=True, eq=False)
class Placed:
    """A layout, and the keys of all reads on it, level by level."""

    layout: Layout
    keys: Keys


def lay_out(gates: tuple[SparseGate, ...], positions: Positions) -> Layout:
    """Where positions, gates and the features of each level are in a token."""
    first = [positions.width + len(gates)]
    for level in range(1, max(gate.level for gate in gates) + 1):
        first.append(first[-1] + max(read.head for read in level_reads(gates, level)) + 1)
    return Layout(positions, len(gates), tuple(first[:-1]), first[-1])


def place(gates: tuple[SparseGate, ...], positions: Positions) -> Placed:
    """The layout on these positions, and the keys that the lemma gives there."""
    layout = lay_out(gates, positions)
    depth = max(gate.level for gate in gates)
    reads = [read for level in range(1, depth + 1) for read in level_reads(gates, level)]
    return Placed(layout, make_keys(tuple(reads), layout))


def choose_layout(request: LayoutRequest) -> tuple[Placed | None, list[str]]:
    """Positions that are wide enough, or the reasons why there are none."""
    count = request.n_vectors
    if not isinstance(request.basis, str):
        vectors = as_vectors(request.basis, request.context_length, "compose")
        if request.trained:
            chosen = vectors.rows(list(request.relevant))[:, RESERVED:]
            vectors = as_vectors(chosen, count, "compose")
        return _judged(request, _placed(request, vectors))
    if request.basis == "orthonormal":
        width = RESERVED + count if request.width is None else request.width
        size = 8 * count * width if request.trained else 0
        if size > MAX_TABLES:
            reason = (
                f"the vectors of its {count} relevant bits take {readable_bytes(size)}, and these "
                f'end at {readable_bytes(MAX_TABLES)}; use basis="random"'
            )
            return None, [reason]
        if width < RESERVED + count:
            reason = (
                f"width {width} is too small for {count} orthonormal vectors beside e_0, e_1 and "
                f'v_[CLS]: at least {RESERVED + count}, or basis="random"'
            )
            return None, [reason]
        return _judged(request, _placed(request, draw_basis("orthonormal", count, width, 0)))
    if request.width is not None and request.width <= RESERVED:
        least = RESERVED + 1
        reason = f"width {request.width} leaves no room beside e_0, e_1 and v_[CLS]"
        return None, [f"{reason}: at least {least}"]
    return _grow(request)


def _grow(request: LayoutRequest) -> tuple[Placed | None, list[str]]:
    """Random vectors, wider and wider until every gate's lead is good, unless a width is given."""
    sizes = [
        sum(not source.is_gate for source in group)
        for gate in request.gates
        for group in gate.groups
    ]
    # Every read has a lead over all tokens, and the least of them counts.
    n_scores = request.n_vectors * max(1, sum(size > 0 for size in sizes))
    guess = automatic_width(n_scores, max(1, *sizes), request.coherence)
    width = int(HEADROOM * guess) if request.width is None else request.width
    for last in range(MAX_GROWTHS):
        size = request.n_vectors * width / 8
        if size > request.max_bytes:
            reason = (
                f"a random basis good enough for its gates takes {readable_bytes(size)}, above the "
                f"budget of {readable_bytes(request.max_bytes)}; use "
                'basis="orthonormal", which needs no memory here, or raise max_bytes'
            )
            return None, [reason]
        vectors = draw_basis("random", request.n_vectors, width, request.seed)
        placed = _placed(request, vectors)
        good = placed.keys.gaps.min() >= GOOD_GAP and _coherence_excess(request, placed) is None
        if good or request.width is not None or last == MAX_GROWTHS - 1:
            return _judged(request, placed)
        width = RESERVED + math.ceil(GROWTH * (width - RESERVED))
    raise AssertionError("MAX_GROWTHS is positive")


def _placed(request: LayoutRequest, vectors: Positions) -> Placed:
    if request.trained:
        marks = vectors.rows(slice(None))
        vectors = SparsePositions(request.context_length, request.relevant, marks)
    return place(request.gates, vectors)


def _coherence_excess(request: LayoutRequest, placed: Placed) -> float | None:
    """The coherence of the relevant vectors, if it is more than was asked for."""
    if request.coherence is None:
        return None
    found = measure(placed.layout.positions, request.relevant).coherence
    return found if found > request.coherence else None


def _judged(request: LayoutRequest, placed: Placed) -> tuple[Placed, list[str]]:
    """Reasons against these positions: by the leads that were measured."""
    reasons, gap = [], float(placed.keys.gaps.min())
    if gap < LEAST_GAP:
        reasons.append(
            f"a gate's sparsity is above what width {placed.layout.basis_width} allows: its "
            f"sources lead by {gap:.3g} (needed: {LEAST_GAP}); leave width free, or choose a "
            "larger one"
        )
    excess = _coherence_excess(request, placed)
    if excess is not None:
        reasons.append(
            f"the vectors of the relevant positions have coherence {excess:.3g}, above the "
            f"{request.coherence:.3g} asked for; leave width free, or choose a larger one"
        )
    return placed, reasons
