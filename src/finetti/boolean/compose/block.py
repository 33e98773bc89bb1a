"""One block per level: the attention and the lookup of all gates of that level.

Token of bit t: e_b + v_t. Token of gate g: v_[CLS] + q_g, with q_g a coordinate of its own. Head j
of a block reads, for every gate of its level, the mean sign of the gate's j-th group of sources
into a feature coordinate (attention, added to the stream); the lookup recognizes what was read
together with q_g, and writes e_0 or e_1 into the token of the gate (added as well), which then
looks like a bit to the gates above.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.basis import MIN_EIGENVALUE
from finetti.boolean.compose.gates import Source, SparseGate
from finetti.boolean.compose.recognition import separation
from finetti.boolean.domain import refuse_weights
from finetti.boolean.embeddings.base import score_scale
from finetti.boolean.network.frozen import freeze
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.positions import RESERVED, BitPositions, StandardPositions


@dataclass(frozen=True)
class Layout:
    """Where things are in a token: bits and positions first, then gates, then features.

    Args:
        positions: of the bits, in width ``basis_width``.
        n_gates: how many gates.
        first_features: for each level, where its feature coordinates begin.
        width: d.
    """

    positions: BitPositions
    n_gates: int
    first_features: tuple[int, ...]
    width: int

    @property
    def basis_width(self) -> int:
        """The dimensions of bits, [CLS] and positions."""
        return self.positions.width

    @property
    def n_tokens(self) -> int:
        """T + the number of gates."""
        return self.positions.count + self.n_gates

    @property
    def key_width(self) -> int:
        """The coordinates that keys have: those of positions and of gates, one after the other."""
        return self.basis_width - RESERVED + self.n_gates


@dataclass(frozen=True)
class GateRead:
    """One gate's use of one head.

    Args:
        gate: which gate.
        head: which head of its block.
        sources: what is read: the gate's group of that number.
    """

    gate: int
    head: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of reads as Lemma B.2 has them, and what was measured of them.

    Args:
        vectors: over the coordinates of positions and gates, shape (reads, key_width).
        gaps: by how much the sources of each read lead, before R; 0 or less if they do not.
        spans: bounds on ‖u‖²: (bits of a group)/(least eigenvalue of their Gram matrix) + gates.
    """

    vectors: NDArray[np.float64]
    gaps: NDArray[np.float64]
    spans: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Block:
    """The weights of one level.

    Args:
        gates: the gates of the level.
        reads: which head reads what for which gate.
        n_heads: H.
        first_feature: where its features begin.
        keys: of every read, over the coordinates of positions and gates: (reads, key_width).
        scales: R of every read.
        gaps, spans: of the lemma's keys on these positions (`Keys`), for the bounds on norms.
        lookup: on the features, then the q_g of its gates.
    """

    gates: tuple[int, ...]
    reads: tuple[GateRead, ...]
    n_heads: int
    first_feature: int
    keys: NDArray[np.float64]
    scales: NDArray[np.float64]
    gaps: NDArray[np.float64]
    spans: NDArray[np.float64]
    lookup: Lookup

    def __post_init__(self) -> None:
        freeze(self)
        refuse_weights(keys=self.keys, scales=self.scales)

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """What a file has of it, by name."""
        return {"keys": self.keys, "scales": self.scales, **self.lookup.arrays}

    @property
    def work(self) -> int:
        """Multiplications for one input: its gates, and one token for all others."""
        return (len(self.gates) + 1) * self.lookup.work


def level_gates(gates: tuple[SparseGate, ...], level: int) -> tuple[int, ...]:
    """Which gates have a level."""
    return tuple(which for which, gate in enumerate(gates) if gate.level == level)


def level_reads(gates: tuple[SparseGate, ...], level: int) -> tuple[GateRead, ...]:
    """One read per group of every gate of a level."""
    return tuple(
        GateRead(which, head, group)
        for which in level_gates(gates, level)
        for head, group in enumerate(gates[which].groups)
    )


def make_keys(reads: tuple[GateRead, ...], layout: Layout) -> Keys:
    """The key of every read: the dual vector of its bits (erratum 3), and 1 on its gates.

    All keys are multiplied with all positions at once: T·d operations a read.
    """
    positions, free = layout.positions, layout.basis_width - RESERVED
    vectors = np.zeros((len(reads), layout.key_width))
    spans = np.zeros(len(reads))
    rows, columns = [], []
    for number, read in enumerate(reads):
        bits = [source.index for source in read.sources if not source.is_gate]
        above = [source.index for source in read.sources if source.is_gate]
        vectors[number, free + np.array(above, dtype=np.int64)] = 1.0
        vectors[number, :free], least = _dual_key(positions, bits)
        spans[number] = (len(bits) / least if least > 0 else np.inf) + len(above)
        rows += bits
        columns += [number] * len(bits)
    scores = project_keys(vectors, layout)
    least_own = np.full(len(reads), np.inf)
    np.minimum.at(least_own, columns, scores[rows, columns])  # 1, but for dependent vectors
    scores[rows, columns] = -np.inf
    others = np.maximum(scores.max(axis=0, initial=-np.inf), 0.0)  # gates that are not read: 0
    return Keys(vectors, np.minimum(least_own, 1.0) - others, spans)


def _dual_key(positions: BitPositions, bits: list[int]) -> tuple[NDArray[np.float64], float]:
    """u = V(VᵀV)^{-1}1 and the least eigenvalue of VᵀV; zeros if the vectors are dependent."""
    key = np.zeros(positions.width - RESERVED)
    if isinstance(positions, StandardPositions) or not bits:
        key[bits] = 1.0
        return key, 1.0
    vectors = positions.rows(bits)[:, RESERVED:]
    gram = vectors @ vectors.T
    least = float(np.linalg.eigvalsh(gram)[0])
    if not least > MIN_EIGENVALUE:
        return key, 0.0
    return np.linalg.solve(gram, np.ones(len(bits))) @ vectors, least


def project_keys(keys: NDArray[np.floating], layout: Layout) -> NDArray[np.floating]:
    """The scores of keys (reads, key_width) on all bits, before R: shape (T, reads)."""
    free = layout.basis_width - RESERVED
    whole = np.zeros((layout.basis_width, len(keys)), dtype=keys.dtype)
    whole[RESERVED:] = keys[:, :free].T
    return layout.positions.project(whole)


def read_scales(
    reads: tuple[GateRead, ...], gaps: NDArray[np.float64], n_tokens: int, margin: float
):
    """R = log(8·N·margin/γ)/gap of every read, N tokens in all (Lemma B.7)."""
    return np.array(
        [
            score_scale(n_tokens, separation(len(read.sources)), margin, gap)
            for read, gap in zip(reads, gaps, strict=True)
        ]
    )
