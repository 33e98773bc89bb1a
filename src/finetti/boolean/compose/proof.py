"""Why a network of gates is right on all 2^T inputs: gate by gate, level by level.

Scores come from positions alone, so the attention of a gate is the same on every input, and its
features lie within Σ|w_i − 1/n| + (the rest of the attention) of their points. Intervals through
the block's lookup (`network.proof`) then bound what the gate writes; if that is right up to
rounding, the gate looks like a bit to the gates above.
"""

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.compose.block import Block
from finetti.boolean.compose.composed import Composed, Mixture
from finetti.boolean.functions.base import all_bits
from finetti.boolean.heads.plan import ONE_BIT, ZERO_BIT, scalar_points
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.proof import output_bounds


def read_error(
    composed: Composed, block: Block, mixture: Mixture, column: int
) -> tuple[float, float]:
    """The largest error of one read over all inputs, and its attention on what it should read."""
    read = block.reads[column]
    sources = [composed.gates[read.gate].sources[place] for place in read.places]
    weights = np.array(
        [
            (mixture.gates if source.is_gate else mixture.bits)[source.index, column]
            for source in sources
        ]
    )
    everything = float(mixture.bits[:, column].sum() + mixture.gates[:, column].sum())
    rest = max(0.0, everything - float(weights.sum()))
    return float(np.abs(weights - 1 / len(weights)).sum()) + rest, float(weights.sum())


def gate_bound(composed: Composed, block: Block, mixture: Mixture, which: int) -> float:
    """The largest error of what gate ``which`` writes, if its sources are right; ∞ if unknown."""
    gate = composed.gates[which]
    columns = [column for column, read in enumerate(block.reads) if read.gate == which]
    if gate.symmetric:
        values = gate.function.profile()
        points = scalar_points(gate.sparsity, bag=False)[:, None]
    else:
        values = gate.function.table()
        points = 1 - 2.0 * all_bits(gate.sparsity)
    assert values is not None  # a symmetric gate has a profile
    low = np.zeros((len(points), len(block.coordinates)))
    high = low.copy()
    # Heads that this gate does not use read signs of anything.
    low[:, : block.n_heads], high[:, : block.n_heads] = -1.0, 1.0
    for place, column in enumerate(columns):
        head, (error, _) = block.reads[column].head, read_error(composed, block, mixture, column)
        low[:, head], high[:, head] = points[:, place] - error, points[:, place] + error
    own = block.n_heads + block.gates.index(which)
    low[:, own] = high[:, own] = 1.0
    return _written_error(block, low, high, values, 1 - values)


def silence_bound(block: Block) -> float:
    """The most that a block writes into a token that is none of its gates, whatever it has read."""
    low = np.zeros((1, len(block.coordinates)))
    high = low.copy()
    low[:, : block.n_heads], high[:, : block.n_heads] = -1.0, 1.0
    return _written_error(block, low, high, np.zeros(1), np.zeros(1))


def _written_error(
    block: Block,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    ones: NDArray[np.float64],
    zeros: NDArray[np.float64],
) -> float:
    """How far what is written into e_1 and e_0 can be from ``ones`` and ``zeros``."""
    worst = 0.0
    for coordinate, wanted in ((ONE_BIT, ones), (ZERO_BIT, zeros)):
        bounds = output_bounds(_column(block, coordinate), low, high)
        if bounds is None:
            return float("inf")
        worst = max(worst, *(float(np.abs(bound - wanted).max()) for bound in bounds))
    return worst


def _column(block: Block, coordinate: int) -> Lookup:
    outer: NDArray[np.float64] = block.outer[:, coordinate]
    return Lookup(block.inner, block.inner_bias, block.middle, block.middle_bias, outer)


def network_bound(composed: Composed) -> float:
    """The largest error of any gate over all inputs; rounding, if the network is right."""
    pairs = list(zip(composed.blocks, composed.mixtures, strict=True))
    silent = [silence_bound(block) for block in composed.blocks]
    written = [gate_bound(composed, *pair, which) for pair in pairs for which in pair[0].gates]
    return max(*silent, *written)
