"""Positions on which every gate can tell its sources from all other tokens."""

from dataclasses import dataclass

from finetti.boolean.basis import automatic_width, measure_geometry
from finetti.boolean.compose.block import Keys, Layout, level_reads, make_keys
from finetti.boolean.compose.gates import SparseGate
from finetti.boolean.network.positions import BitPositions
from finetti.boolean.planning import MIN_GAP, Attempt, Found, PositionRequest, choose_positions

WIDTH_HEADROOM = 1.1  # dual vectors are longer than √s, so that a first guess would often just miss


@dataclass(frozen=True, eq=False)
class Placed:
    """A layout, and the keys of all reads on it, level by level."""

    layout: Layout
    keys: Keys


def lay_out(gates: tuple[SparseGate, ...], positions: BitPositions) -> Layout:
    """Where positions, gates and the features of each level are in a token."""
    first = [positions.width + len(gates)]
    for level in range(1, max(gate.level for gate in gates) + 1):
        first.append(first[-1] + max(read.head for read in level_reads(gates, level)) + 1)
    return Layout(positions, len(gates), tuple(first[:-1]), first[-1])


def place_gates(gates: tuple[SparseGate, ...], positions: BitPositions) -> Placed:
    """The layout on these positions, and the keys that the lemma gives there."""
    layout = lay_out(gates, positions)
    depth = max(gate.level for gate in gates)
    reads = [read for level in range(1, depth + 1) for read in level_reads(gates, level)]
    return Placed(layout, make_keys(tuple(reads), layout))


def choose_layout(gates: tuple[SparseGate, ...], request: PositionRequest) -> Found:
    """Positions that are wide enough for all gates, or the reasons why there are none."""

    def build(vectors: BitPositions) -> Attempt:
        positions = request.embedding.place(vectors, request.context_length, request.indices)
        placed, coherence = place_gates(gates, positions), 0.0
        if request.coherence is not None:
            coherence = measure_geometry(positions, request.indices).coherence
        gap = float(placed.keys.gaps.min())
        complaint = (
            f"a gate's sparsity is above what width {positions.width} allows: its sources lead by "
            f"{gap:.3g} (needed: {MIN_GAP}); leave width free, or choose a larger one"
        )
        return Attempt(placed, gap, coherence, complaint)

    sizes = [sum(not s.is_gate for s in group) for gate in gates for group in gate.groups]
    # Every read has a lead over all tokens, and the least of them counts.
    n_scores = request.n_vectors * max(1, sum(size > 0 for size in sizes))
    first_width = int(WIDTH_HEADROOM * automatic_width(n_scores, max(1, *sizes), request.coherence))
    return choose_positions(request, build, first_width)
