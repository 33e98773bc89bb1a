"""A network in one precision, run without writing its tokens out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.embeddings.base import ONE_BIT
from finetti.boolean.network.block import Block
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.mixture import BLOCK_UNITS, Mixture, levels
from finetti.boolean.network.tables import BitSums, Tables
from finetti.boolean.network.worst_case import adversaries

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
class Runner(ABC):
    """From bits to sums, all that matters of an input, and from sums to values."""

    tables: BitSums

    @abstractmethod
    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values, shape (m,)."""

    def batches(self, trials: Trials) -> Iterator[Batch]:
        """Sums of all settings, for one choice of the other bits after the other, with a function
        that gives these for a row."""
        aside = np.delete(np.arange(len(self.tables.zero)), list(trials.tried))
        inside = self.tables.settings_sums(trials.tried, trials.settings)
        outside = self.tables.among(aside).sums(trials.patterns[:, aside])
        for row, sums in zip(trials.patterns, outside, strict=True):
            yield inside + sums, lambda _, row=row: row

    def n_batches(self, trials: Trials) -> int:
        """How many of them there are."""
        return len(trials.patterns)

    def most_rounding(self) -> float:
        """No value moves by more when its sums are taken in another order."""
        return 0.0

    def rounding(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move each value; 0 where the bound on all inputs has it."""
        return np.zeros(len(sums))

    def largest_rounding(self, sums: NDArray[Any]) -> float:
        """The largest of these."""
        return 0.0


@dataclass(frozen=True, eq=False)
class GateRunner(Runner):
    """Block by block. All 0 and all 1 are the worst outside bits: what a gate reads is a sum of
    signs whose weights no bit changes and are never negative."""

    tables: Mixture
    blocks: tuple[Block, ...]

    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The value of the last gate."""
        out = np.empty(len(sums), dtype=sums.dtype)
        largest = max(len(b.gates) + 1 for b in self.blocks) * max(b.n_heads for b in self.blocks)
        step = max(1, BLOCK_UNITS // (4 * max(largest, 2 * len(self.tables.gates))))
        for start in range(0, len(sums), step):
            *_, (_, written) = levels(self.blocks, self.tables, sums[start : start + step])
            out[start : start + step] = written[:, -1, ONE_BIT]
        return out


@dataclass(frozen=True, eq=False)
class LayerRunner(Runner):
    """The lookup on what [CLS] reads."""

    tables: Tables
    lookup: Lookup

    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The lookup on the features."""
        return self.lookup(self.tables.features(sums))

    def batches(self, trials: Trials) -> Iterator[Batch]:
        """Also what the adversary of every feature makes of each setting."""
        yield from super().batches(trials)
        tables, tried = self.tables, trials.tried
        inside = tables.settings_sums(tried, trials.settings)
        for _, adversary in adversaries(tables, tried):
            _, used, sums = adversary.attack(inside)

            def bits(row: int, adversary: Any = adversary, used: Any = used) -> NDArray[Any]:
                whole = np.zeros(len(tables.zero), dtype=np.uint8)
                whole[adversary.aside] = adversary.bits(used[row])
                return whole

            yield sums.astype(tables.zero.dtype), bits

    def n_batches(self, trials: Trials) -> int:
        """With those of the adversaries."""
        return len(trials.patterns) + len(adversaries(self.tables, trials.tried))

    def most_rounding(self) -> float:
        """As if every unit of the lookup were on."""
        return self.lookup.most_resolution(self.tables.largest)

    def rounding(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """Of the lookup."""
        return self.lookup.resolution(self.tables.features(sums))

    def largest_rounding(self, sums: NDArray[Any]) -> float:
        """The largest of all rows, or of some of too many."""
        size = len(self.lookup.inner_bias) * len(self.lookup.outer)
        step = 1 + len(sums) * size // MAX_ROUNDING_WORK
        return float(self.rounding(sums[::step]).max(initial=0.0))
