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

from finetti.boolean.compose.block import Block, Layout, project_keys
from finetti.boolean.embeddings.base import ONE_BIT, ZERO_BIT
from finetti.boolean.network.positions import RESERVED

BLOCK_UNITS = 2**22  # hidden units of a block of inputs
BLOCK_POSITIONS = 2**15  # positions that are summed at a time


@dataclass(frozen=True, eq=False)
class Mixture:
    """The softmax weights of every read of every block, and last the mean over all tokens.

    Args:
        bits: on the T bits, shape (T, reads + 1).
        gates: on the gates, shape (G, reads + 1).
        constant: Σ_t w_tP_t·(e_0 − e_1): what positions alone add; 0 unless a file has it.
        leads: by how much the sources of each read lead in score, R included.
        columns: which columns belong to each block.
    """

    bits: NDArray[Any]
    gates: NDArray[Any]
    constant: NDArray[Any]
    leads: NDArray[np.float64]
    columns: tuple[slice, ...]

    @cached_property
    def weight(self) -> NDArray[Any]:
        """The attention of every read on all bits together."""
        return self.bits.sum(axis=0)

    def sums(self, rows: Any, among: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Σ_t w_t(1 − 2b_t) at every row of bits, over all positions or ``among`` these: (m, C).

        Rows are an array, or sparse in CSR form.
        """
        weights = self.bits if among is None else self.bits[among]
        total = self.weight if among is None else weights.sum(axis=0)
        out = np.tile(total, (rows.shape[0], 1))
        if not isinstance(rows, np.ndarray):
            return out - 2 * (rows.astype(out.dtype) @ weights)
        step = max(1, BLOCK_UNITS // min(max(len(weights), 1), BLOCK_POSITIONS))
        for top in range(0, len(rows), step):
            for left in range(0, len(weights), BLOCK_POSITIONS):
                here = slice(left, left + BLOCK_POSITIONS)
                ones = rows[top : top + step, here].astype(out.dtype)
                out[top : top + step] -= 2 * (ones @ weights[here])
        return out


def make_mixture(blocks: tuple[Block, ...], layout: Layout, dtype: Any) -> Mixture:
    """The attention of all reads, in the precision asked for."""
    free, count = layout.basis_width - RESERVED, layout.positions.count
    keys = np.concatenate([block.scales[:, None] * block.keys for block in blocks]).astype(dtype)
    bits, gates = project_keys(keys, layout), keys[:, free:].T.copy()
    reads = [read for block in blocks for read in block.reads]
    leads = np.array([_lead(bits[:, k], gates[:, k], read) for k, read in enumerate(reads)])
    top = np.maximum(bits.max(axis=0), gates.max(axis=0))
    bits, gates = np.exp(bits - top), np.exp(gates - top)
    total = bits.sum(axis=0) + gates.sum(axis=0)
    mean = np.full((layout.n_tokens, 1), 1 / layout.n_tokens, dtype=dtype)
    bits = np.concatenate([bits / total, mean[:count]], axis=1)
    gates = np.concatenate([gates / total, mean[count:]], axis=1)
    signs = np.zeros((layout.basis_width, 1), dtype=dtype)
    signs[ZERO_BIT], signs[ONE_BIT] = 1.0, -1.0
    constant = layout.positions.project(signs)[:, 0] @ bits
    ends = np.cumsum([0, *(len(block.reads) for block in blocks)])
    columns = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
    return Mixture(bits, gates, constant, leads, columns)


def _lead(bits: NDArray[Any], gates: NDArray[Any], read: Any) -> float:
    """How far the least score of what is read is above all others; ∞ if there are none."""
    own = [source.index for source in read.sources if not source.is_gate]
    above = [source.index for source in read.sources if source.is_gate]
    least = min(bits[own].min(initial=np.inf), gates[above].min(initial=np.inf))
    rest = np.delete(bits, own).max(initial=-np.inf), np.delete(gates, above).max(initial=-np.inf)
    return float(least - max(rest))


def recognize(block: Block, features: NDArray[Any]) -> NDArray[Any]:
    """What the lookup writes into each gate's token and, last, into any other: (m, G_l + 1, 2)."""
    lookup, dtype = block.lookup, features.dtype
    heads = block.n_heads
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


@dataclass(frozen=True, eq=False)
class Level:
    """What one block did at a batch of inputs.

    Args:
        features: what each of its gates read, and last any other token: (m, G_l + 1, H).
        written: e_0 and e_1 of all gates after the block, shape (m, G, 2).
    """

    features: NDArray[Any]
    written: NDArray[Any]


def levels(blocks: tuple[Block, ...], mixture: Mixture, sums: NDArray[Any]) -> Iterator[Level]:
    """Block by block, from what every read sums up over the bits (`Mixture.sums`)."""
    n_gates, dtype = len(mixture.gates), sums.dtype
    written = np.zeros((len(sums), n_gates, 2), dtype=dtype)
    drift = np.zeros(len(sums), dtype=dtype)  # what blocks have added to the value of every bit
    sums = sums + mixture.constant
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
        yield Level(features, written)


def run_blocks(blocks: tuple[Block, ...], mixture: Mixture, sums: NDArray[Any]) -> NDArray[Any]:
    """The value of the last gate, from the sums over the bits."""
    out = np.empty(len(sums), dtype=sums.dtype)
    largest = max(len(block.gates) + 1 for block in blocks) * max(b.n_heads for b in blocks)
    step = max(1, BLOCK_UNITS // (4 * max(largest, 2 * len(mixture.gates))))
    for start in range(0, len(sums), step):
        *_, last = levels(blocks, mixture, sums[start : start + step])
        out[start : start + step] = last.written[:, -1, ONE_BIT]
    return out
