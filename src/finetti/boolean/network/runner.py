"""A network in one precision, run without writing its tokens out.

Keys of gates look at positions and gates, which no bit changes, so the attention of every read is
one vector of T + G numbers, and what it reads of the bits is linear in them: one product of the
bits with a table of T × reads serves all blocks. All tokens that are no gate of a block read the
same mean of everything with a query of zero, so one more token stands for them: whatever a block
writes into them, if its numbers are wrong, is added to all of them. This is the network for ANY
numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.token_embedding import ONE_BIT, ZERO_BIT
from finetti.boolean.network.block import Block
from finetti.boolean.network.lookup import BLOCK_UNITS
from finetti.boolean.network.sum_tables import Tables
from finetti.boolean.verify.adversary import adversaries

MAX_ROUNDING_WORK = 2**31  # multiplications that the rounding of one batch may cost
Batch = tuple[NDArray[Any], Callable[[int], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class Trials:
    """What is run when not all 2^T inputs can be."""

    tried: tuple[int, ...]  # the bits that are set, in increasing order
    settings: NDArray[np.uint8]  # to what, shape (settings, tried)
    patterns: NDArray[Any]  # to what all bits are set first, shape (patterns, T)
    method: str  # in words


@dataclass(frozen=True, eq=False)
class Runner:
    """From bits to sums, all that matters of an input, and from sums to values."""

    tables: Tables
    blocks: tuple[Block, ...]  # with lookups in that precision

    @property
    def by_gates(self) -> bool:
        """Or [CLS] alone reads."""
        return self.tables.fixed is not None

    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values, shape (m,): of [CLS], or of the last gate."""
        out = np.empty(len(sums), dtype=sums.dtype)
        tokens = [len(block.readers) + 1 for block in self.blocks]
        largest = max(tokens) * max(block.n_heads for block in self.blocks)
        step = max(1, BLOCK_UNITS // (4 * max(largest, 2 * len(self.tables.readers))))
        for start in range(0, len(sums), step):
            *_, (_, values) = self.levels(sums[start : start + step])
            out[start : start + step] = values[:, -1]
        return out

    def levels(self, sums: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Block by block: what each of its readers has read, and last any token that is no gate of
        it, shape (m, readers + 1, features); and the values of all readers after the block, shape
        (m, readers)."""
        attention = self.tables.fixed
        if attention is None:
            features = self.tables.features(sums)
            yield features[:, None], self.blocks[0].lookup(features)[:, None]
            return
        gates, dtype = self.tables.readers, sums.dtype
        written = np.zeros((len(sums), len(gates), 2), dtype=dtype)
        drift = np.zeros(len(sums), dtype=dtype)  # what blocks have added to the value of every bit
        first = 0
        for block in self.blocks:
            values = written[:, :, ZERO_BIT] - written[:, :, ONE_BIT]
            which, first = np.r_[first : first + len(block.reads), -1], first + len(block.reads)
            read = sums[:, which] + values @ gates[:, which]
            if drift.any():
                read += drift[:, None] * attention[:, which].sum(axis=0)
            features = np.tile(read[:, -1:, None], (1, len(block.readers) + 1, block.n_heads))
            features[:, *block.places] = read[:, :-1]
            new = recognize(block, features)
            written = written.copy()
            if new[:, -1].any():
                others = np.delete(np.arange(len(gates)), block.readers)
                written[:, others] += new[:, -1:]
                drift = drift + new[:, -1, ZERO_BIT] - new[:, -1, ONE_BIT]
            written[:, block.readers] += new[:, :-1]
            yield features, written[:, :, ONE_BIT]

    def batches(self, trials: Trials) -> Iterator[Batch]:
        """Sums of all settings, for one choice of the other bits after the other, with a function
        that gives these for a row; for [CLS] also what the adversary of every feature makes of each
        setting. All 0 and all 1 are the worst for gates: what a gate reads is a sum of signs whose
        weights no bit changes and are never negative."""
        tables, tried = self.tables, trials.tried
        inside = tables.settings_sums(tried, trials.settings)
        outside = tables.outside_sums(tried, trials.patterns)
        for row, sums in zip(trials.patterns, outside, strict=True):
            yield inside + sums, lambda _, row=row: row
        for _, adversary in self._adversaries(trials):
            _, used, sums = adversary.attack(inside)

            def bits(row: int, adversary: Any = adversary, used: Any = used) -> NDArray[Any]:
                whole = np.zeros(len(tables.zero), dtype=np.uint8)
                whole[adversary.aside] = adversary.bits(used[row])
                return whole

            yield sums.astype(tables.zero.dtype), bits

    def _adversaries(self, trials: Trials) -> list[Any]:
        return [] if self.by_gates else adversaries(self.tables, trials.tried)

    def n_batches(self, trials: Trials) -> int:
        """How many of them there are."""
        return len(trials.patterns) + len(self._adversaries(trials))

    def most_rounding(self) -> float:
        """No value moves by more when its sums are taken in another order: as if every unit of the
        lookup were on; 0 for gates, whose bound on all inputs has it."""
        if self.by_gates:
            return 0.0
        return self.blocks[0].lookup.most_resolution(self.tables.largest)

    def rounding(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move each value."""
        if self.by_gates:
            return np.zeros(len(sums))
        return self.blocks[0].lookup.resolution(self.tables.features(sums))

    def largest_rounding(self, sums: NDArray[Any]) -> float:
        """The largest of all rows, or of some of too many."""
        lookup = self.blocks[0].lookup
        step = 1 + len(sums) * len(lookup.inner_bias) * len(lookup.outer) // MAX_ROUNDING_WORK
        return float(self.rounding(sums[::step]).max(initial=0.0))


def recognize(block: Block, features: NDArray[Any]) -> NDArray[Any]:
    """What the lookup writes into each gate's token and, last, into any other: (m, G_l + 1, 2)."""
    inner, inner_bias, middle, middle_bias, outer = block.lookup.arrays.values()
    marks = np.concatenate([inner[block.n_heads :], np.zeros_like(inner[:1])]) + inner_bias
    out = np.empty((*features.shape[:2], 2), dtype=features.dtype)
    step = max(1, BLOCK_UNITS // (features.shape[1] * max(inner.shape[1], middle.shape[1])))
    for start in range(0, len(features), step):
        hidden = features[start : start + step] @ inner[: block.n_heads]
        hidden += marks
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ middle
        hidden += middle_bias
        out[start : start + step] = np.maximum(hidden, 0, out=hidden) @ outer
    return out
