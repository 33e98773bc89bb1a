"""The blocks of gates, one per level: the heads and the lookup of all gates of that level.

Token of bit t: e_b + v_t. Token of gate g: v_[CLS] + q_g, with q_g a coordinate of its own. Head j
of a block reads, for every gate of its level, the mean sign of the gate's j-th group of sources
into a feature coordinate (attention, added to the stream); the lookup recognizes what was read
together with q_g, and writes e_0 or e_1 into the token of the gate (added as well), which then
looks like a bit to the gates above.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.position_geometry import MIN_GAP, dual_vectors
from finetti.boolean.embeddings.position_vectors import RESERVED, BitPositions, StandardPositions
from finetti.boolean.embeddings.token_embedding import score_scale
from finetti.boolean.language.gate_graph import Gates
from finetti.boolean.network.gate_lookup import SIGN_MEANS, make_gate_lookup
from finetti.boolean.network.gate_network import GateBlock, level_gates, level_reads


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of reads as Lemma B.2 has them, and what was measured of them."""

    positions: BitPositions  # of the bits
    # over the coordinates of positions, then of gates, shape (reads, key width)
    vectors: NDArray[np.float64]
    # by how much the sources of each read lead, before R; 0 or less if they do not
    gaps: NDArray[np.float64]
    # bounds on ‖u‖²: (bits of a group)/(least eigenvalue of their Gram matrix) + gates
    spans: NDArray[np.float64]


def make_keys(gates: Gates, positions: BitPositions) -> Keys:
    """The key of every read, level by level: the dual vector of its bits (erratum 3), and 1 on its
    gates.

    All keys are multiplied with all positions at once: T·d operations a read.
    """
    reads = [read for level in level_reads(gates) for read in level]
    free = positions.width - RESERVED
    vectors, spans = np.zeros((len(reads), free + len(gates))), np.zeros(len(reads))
    rows, columns = [], []
    for number, read in enumerate(reads):
        vectors[number, free + np.array(read.gates, dtype=np.int64)] = 1.0
        vectors[number, :free], least = _joint_key(positions, read.bits)
        spans[number] = (len(read.bits) / least if least > 0 else np.inf) + len(read.gates)
        rows += read.bits
        columns += [number] * len(read.bits)
    scores = positions.project(over_tokens(vectors, positions.width))
    least_own = np.full(len(reads), np.inf)
    np.minimum.at(least_own, columns, scores[rows, columns])  # 1, but for dependent vectors
    scores[rows, columns] = -np.inf
    others = np.maximum(scores.max(axis=0, initial=-np.inf), 0.0)  # gates that are not read: 0
    return Keys(positions, vectors, np.minimum(least_own, 1.0) - others, spans)


def _joint_key(positions: BitPositions, bits: list[int]) -> tuple[NDArray[np.float64], float]:
    """u = V(VᵀV)^{-1}1 and the least eigenvalue of VᵀV; zeros if the vectors are dependent."""
    key = np.zeros(positions.width - RESERVED)
    if isinstance(positions, StandardPositions) or not bits:
        key[bits] = 1.0
        return key, 1.0
    duals, least = dual_vectors(positions.rows(bits)[:, RESERVED:])
    return duals.sum(axis=0), least


def over_tokens(keys: NDArray[np.floating], width: int) -> NDArray[np.floating]:
    """Keys of gates (reads, positions and gates) over the coordinates of bits: (d, reads)."""
    whole = np.zeros((width, len(keys)), dtype=keys.dtype)
    whole[RESERVED:] = keys[:, : width - RESERVED].T
    return whole


def make_blocks(gates: Gates, keys: Keys, margin: float) -> tuple[GateBlock, ...]:
    """The weights of every level, with R = log(8·N·margin/γ)/gap of every read, N tokens in all
    (Lemma B.7)."""
    n_tokens = keys.positions.count + len(gates)
    blocks, first = [], 0
    for here, reads in zip(level_gates(gates), level_reads(gates), strict=True):
        own = slice(first, first + len(reads))
        first += len(reads)
        apart = [SIGN_MEANS.separation(len(read.sources), True) for read in reads]
        scales = [
            score_scale(n_tokens, each, margin, max(gap, MIN_GAP))
            for each, gap in zip(apart, keys.gaps[own], strict=True)
        ]
        lookup = make_gate_lookup([gates[which] for which in here])
        measured = keys.gaps[own], keys.spans[own]
        blocks.append(GateBlock(reads, np.array(scales), keys.vectors[own], lookup, *measured))
    return tuple(blocks)
