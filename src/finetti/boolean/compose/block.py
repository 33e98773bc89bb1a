"""One block per level: the attention and the lookup of all gates of that level.

Token of bit t: e_b + v_t. Token of gate g: v_[CLS] + q_g, with q_g a coordinate of its own. A block
reads sources into feature coordinates (attention, added to the stream), recognizes what it has read
together with q_g (lookup), and writes e_0 or e_1 into the token of the gate (added as well), which
then looks like a bit to the gates above.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.basis import measure
from finetti.boolean.compose.gates import SparseGate
from finetti.boolean.heads.plan import ONE_BIT, ZERO_BIT, scalar_points, score_scale, unit
from finetti.boolean.network.frozen import freeze
from finetti.boolean.network.lookup import CORNERS, SIGNS
from finetti.boolean.network.positions import Positions


@dataclass(frozen=True)
class Layout:
    """Where things are in a token: bits and positions first, then gates, then features.

    Args:
        positions: of the bits, in width ``basis_width``.
        n_gates: how many gates.
        first_features: for each level, where its feature coordinates begin.
        width: d.
    """

    positions: Positions
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


@dataclass(frozen=True, eq=False)
class Read:
    """One gate's use of one head.

    Args:
        gate: which gate.
        head: which head of its block; 0 reads the mean of all sources if the block has a mean head.
        key: over all coordinates, 1 on what is read.
        scale: R.
        gap: by how much sources lead.
        places: which of the gate's sources are read.
    """

    gate: int
    head: int
    key: NDArray[np.float64]
    scale: float
    gap: float
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        freeze(self)


@dataclass(frozen=True, eq=False)
class Block:
    """The weights of one level.

    Args:
        gates: the gates of the level.
        reads: which head reads what for which gate.
        n_heads: H.
        first_feature: where its features begin.
        coordinates: what its lookup reads: the features, then the q_g of its gates.
        inner, inner_bias, middle, middle_bias, outer: the lookup; outer writes e_0 and e_1.
    """

    gates: tuple[int, ...]
    reads: tuple[Read, ...]
    n_heads: int
    first_feature: int
    coordinates: NDArray[np.int64]
    inner: NDArray[np.float64]
    inner_bias: NDArray[np.float64]
    middle: NDArray[np.float64]
    middle_bias: NDArray[np.float64]
    outer: NDArray[np.float64]

    def __post_init__(self) -> None:
        freeze(self)


def head_counts(gates: tuple[SparseGate, ...], level: int) -> tuple[bool, int]:
    """Whether a level needs a mean head, and how many heads that read one source each."""
    here = [gate for gate in gates if gate.level == level]
    mean = any(gate.symmetric for gate in here)
    return mean, max((gate.sparsity for gate in here if not gate.symmetric), default=0)


def separation(gate: SparseGate) -> float:
    """γ: 2/s between means of signs, 2 between signs."""
    return 2 / gate.sparsity if gate.symmetric else 2.0


def make_reads(gates: tuple[SparseGate, ...], which: int, layout: Layout, mean: bool) -> list[Read]:
    """How gate ``which`` reads its sources, by the heads of Lemma B.2."""
    gate = gates[which]
    bits = [place for place, source in enumerate(gate.sources) if not source.is_gate]
    geometry = measure(layout.positions, tuple(gate.sources[place].index for place in bits))
    keys, gaps = np.zeros((gate.sparsity, layout.width)), np.ones(gate.sparsity)
    for place, source in enumerate(gate.sources):
        if source.is_gate:
            keys[place, layout.basis_width + source.index] = 1.0
    chosen = geometry.duals if gate.symmetric else geometry.vectors
    keys[bits, : layout.basis_width] = chosen
    gaps[bits] = geometry.single_gap
    count = layout.n_tokens
    if gate.symmetric:
        gap = geometry.joint_gap
        scale = score_scale(count, separation(gate), 1.0, max(gap, 1e-9))
        everything = tuple(range(gate.sparsity))
        return [Read(which, 0, keys.sum(axis=0), scale, gap, everything)]
    return [
        Read(
            which,
            int(mean) + place,
            keys[place],
            score_scale(count, separation(gate), 1.0, max(float(gaps[place]), 1e-9)),
            float(gaps[place]),
            (place,),
        )
        for place in range(gate.sparsity)
    ]


def make_block(gates: tuple[SparseGate, ...], level: int, layout: Layout) -> Block:
    """The block of one level: its reads, and one lookup that knows every gate by its q_g."""
    mean, n_single = head_counts(gates, level)
    n_heads = int(mean) + n_single
    here = tuple(which for which, gate in enumerate(gates) if gate.level == level)
    reads = [read for which in here for read in make_reads(gates, which, layout, mean)]
    first = layout.first_features[level - 1]
    features = first + np.arange(n_heads)
    coordinates = np.concatenate([features, layout.basis_width + np.array(here)])
    bumps: dict[tuple[int, float, float], int] = {}  # (feature, center, δ) → number
    units: list[tuple[int, list[int], int]] = []  # gate's place, its bumps, how many
    for place, which in enumerate(here):
        gate = gates[which]
        tolerance = separation(gate) / 4
        for points in _true_points(gate, mean):
            own = [
                bumps.setdefault((feature, center, tolerance), len(bumps))
                for feature, center in points
            ]
            units.append((place, own, len(own)))
    n_bumps, n_here = len(bumps), len(here)
    n_corners = len(CORNERS)
    inner = np.zeros((len(coordinates), n_corners * n_bumps + n_here))
    inner_bias = np.zeros(inner.shape[1])
    for (feature, center, tolerance), number in bumps.items():
        four = slice(n_corners * number, n_corners * (number + 1))
        inner[feature, four] = 1 / tolerance
        inner_bias[four] = CORNERS - center / tolerance
    inner[n_heads:, n_corners * n_bumps :] = np.eye(n_here)  # q_g passes as it is
    middle = np.zeros((inner.shape[1], len(units) + n_here))
    middle_bias = np.zeros(middle.shape[1])
    outer = np.zeros((middle.shape[1], 2))
    for number, (place, own, count) in enumerate(units):
        for bump in own:
            middle[n_corners * bump : n_corners * (bump + 1), number] = SIGNS
        middle[n_corners * n_bumps + place, number] = 1.0
        middle_bias[number] = -float(count)  # 1 only if all bumps and q_g are
        outer[number] = unit(2, ONE_BIT) - unit(2, ZERO_BIT)
    middle[n_corners * n_bumps :, len(units) :] = np.eye(n_here)
    outer[len(units) :, ZERO_BIT] = 1.0  # a gate is 0 unless one of its points is recognized
    return Block(
        here,
        tuple(reads),
        n_heads,
        first,
        coordinates,
        inner,
        inner_bias,
        middle,
        middle_bias,
        outer,
    )


def _true_points(gate: SparseGate, mean: bool) -> list[list[tuple[int, float]]]:
    """The settings at which a gate is 1, each as (feature, center) pairs."""
    if gate.symmetric:
        centers = scalar_points(gate.sparsity, bag=False)
        profile = gate.function.profile()
        assert profile is not None
        return [[(0, float(center))] for center in centers[profile == 1]]
    found = []
    for row in np.flatnonzero(gate.function.table()):
        bits = (row >> np.arange(gate.sparsity - 1, -1, -1)) & 1
        found.append([(int(mean) + place, float(1 - 2 * bit)) for place, bit in enumerate(bits)])
    return found
