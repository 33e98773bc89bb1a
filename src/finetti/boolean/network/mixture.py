"""Runs a network of gates without ever writing its tokens out.

Keys look at positions and gates, which no bit changes, so the attention of every read is one vector
of T + G numbers, and what it reads of the bits is linear in them: one product of the bits with a
table of T × reads serves all blocks. All tokens that are no gate of a block read the same mean of
everything with a query of zero, so one more token stands for them: whatever a block writes into
them, if its numbers are wrong, is added to all of them. This is the network for ANY numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.base import ONE_BIT, ZERO_BIT
from finetti.boolean.embeddings.positions import RESERVED, BitPositions
from finetti.boolean.network.block import Block, GateRead, project_keys
from finetti.boolean.network.tables import BitSums

BLOCK_UNITS = 2**22  # hidden units of a block of inputs


@dataclass(frozen=True, eq=False)
class Mixture(BitSums):
    """Σ_t w_t(1 − 2b_t) for the softmax weights w of every read of every block, and last for the
    mean over all tokens; ``cls`` is what positions alone add: 0 unless a file has it."""

    gates: NDArray[Any]  # the weights on the gates, shape (G, reads + 1)
    leads: NDArray[np.float64]  # by how much the sources of each read lead in score, R included
    columns: tuple[slice, ...]  # which columns belong to each block

    def ones(self, which: Any) -> NDArray[Any]:
        """The sign of a 1."""
        return -self.zero[which]

    @property
    def bits(self) -> NDArray[Any]:
        """The weights on the T bits, shape (T, reads + 1)."""
        return self.zero

    @cached_property
    def weight(self) -> NDArray[Any]:
        """The attention of every read on all bits together."""
        return self.bits.sum(axis=0)


def sign_values(positions: BitPositions, dtype: Any) -> NDArray[Any]:
    """P_t·(e_0 − e_1) of every position: 0 unless a file has it."""
    signs = np.zeros((positions.width, 1), dtype=dtype)
    signs[ZERO_BIT], signs[ONE_BIT] = 1.0, -1.0
    return positions.project(signs)[:, 0]


def make_mixture(blocks: tuple[Block, ...], positions: BitPositions, dtype: Any) -> Mixture:
    """The attention of all reads, in the precision asked for."""
    free, count = positions.width - RESERVED, positions.count
    keys = np.concatenate([block.scales[:, None] * block.keys for block in blocks]).astype(dtype)
    bits, gates = project_keys(keys, positions), keys[:, free:].T.copy()
    reads = [read for block in blocks for read in block.reads]
    leads = np.array([_lead(bits[:, k], gates[:, k], read) for k, read in enumerate(reads)])
    top = np.maximum(bits.max(axis=0), gates.max(axis=0))
    bits, gates = np.exp(bits - top), np.exp(gates - top)
    total, n_tokens = bits.sum(axis=0) + gates.sum(axis=0), count + len(gates)
    mean = np.full((n_tokens, 1), 1 / n_tokens, dtype=dtype)
    bits = np.concatenate([bits / total, mean[:count]], axis=1)
    gates = np.concatenate([gates / total, mean[count:]], axis=1)
    ends = np.cumsum([0, *(len(block.reads) for block in blocks)])
    columns = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
    return Mixture(bits, sign_values(positions, dtype) @ bits, gates, leads, columns)


def _lead(bits: NDArray[Any], gates: NDArray[Any], read: GateRead) -> float:
    """How far the least score of what is read is above all others; ∞ if there are none."""
    least = min(bits[read.bits].min(initial=np.inf), gates[read.gates].min(initial=np.inf))
    rest = np.delete(bits, read.bits), np.delete(gates, read.gates)
    return float(least - max(each.max(initial=-np.inf) for each in rest))


def recognize(block: Block, features: NDArray[Any]) -> NDArray[Any]:
    """What the lookup writes into each gate's token and, last, into any other: (m, G_l + 1, 2)."""
    lookup, dtype, heads = block.lookup, features.dtype, block.n_heads
    inner, inner_bias, middle, middle_bias, outer = (
        each.astype(dtype) for each in lookup.arrays.values()
    )
    marks = np.concatenate([inner[heads:], np.zeros_like(inner[:1])]) + inner_bias
    out = np.empty((*features.shape[:2], 2), dtype=dtype)
    step = max(1, BLOCK_UNITS // (features.shape[1] * max(inner.shape[1], middle.shape[1])))
    for start in range(0, len(features), step):
        hidden = features[start : start + step] @ inner[:heads]
        hidden += marks
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ middle
        hidden += middle_bias
        out[start : start + step] = np.maximum(hidden, 0, out=hidden) @ outer
    return out


def levels(
    blocks: tuple[Block, ...], mixture: Mixture, sums: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Block by block, from what every read sums up over the bits (`Mixture.sums`): what each of its
    gates read, and last any other token, shape (m, G_l + 1, H); and e_0 and e_1 of all gates after
    the block, shape (m, G, 2)."""
    n_gates, dtype = len(mixture.gates), sums.dtype
    written = np.zeros((len(sums), n_gates, 2), dtype=dtype)
    drift = np.zeros(len(sums), dtype=dtype)  # what blocks have added to the value of every bit
    for block, columns in zip(blocks, mixture.columns, strict=True):
        values = written[:, :, ZERO_BIT] - written[:, :, ONE_BIT]
        which = np.r_[columns, -1]
        read = sums[:, which] + values @ mixture.gates[:, which]
        if drift.any():
            read += drift[:, None] * mixture.weight[which]
        features = np.tile(read[:, -1:, None], (1, len(block.gates) + 1, block.n_heads))
        places = [block.gates.index(each.gate) for each in block.reads]
        features[:, places, [each.head for each in block.reads]] = read[:, :-1]
        new = recognize(block, features)
        written = written.copy()
        others = np.delete(np.arange(n_gates), block.gates)
        if new[:, -1].any():
            written[:, others] += new[:, -1:]
            drift = drift + new[:, -1, ZERO_BIT] - new[:, -1, ONE_BIT]
        written[:, block.gates] += new[:, :-1]
        yield features, written
