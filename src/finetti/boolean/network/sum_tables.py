"""What readers read of T binary tokens, as sums over positions of the entries of tables.

Each input is a choice of one row of two per position, and its sums are all that matters: no array
is ever T × T or batch × T × d. (`finetti.attention` has the same for gradients in JAX.)
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import all_bits

BLOCK_ENTRIES = 2**23  # entries of a block of bits in floating point: 64 MB
BLOCK_POSITIONS = 2**15  # positions that are summed at a time
ENUMERATED_BITS = 10  # bits of the half that is enumerated once


@dataclass(frozen=True, eq=False)
class SumTables(ABC):
    """A network in one precision: from bits to sums, and from sums to values."""

    always: NDArray[Any]  # what every input has, from the tokens of readers: shape (C,)
    largest: float  # the largest |v| that is read, in the units of the features

    @property
    @abstractmethod
    def length(self) -> int:
        """T."""

    @abstractmethod
    def zero_sums(self) -> NDArray[Any]:
        """The sums of the string of zeros, without `always`."""

    @abstractmethod
    def chosen(self, bits: NDArray[Any], which: list[int] | slice) -> NDArray[Any]:
        """Sums over the positions ``which`` of bits (m, n)."""

    @abstractmethod
    def changes(self, ones: NDArray[Any], here: slice) -> NDArray[Any]:
        """By how much the sums of bits (m, n), in floating point, differ from those of zeros."""

    @abstractmethod
    def outside_sums(self, indices: tuple[int, ...], rows: NDArray[Any]) -> NDArray[Any]:
        """Sums of each row of bits over all positions but ``indices``, without `always`."""

    @abstractmethod
    def outputs(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values of the network, shape (m,)."""

    def most_rounding(self) -> float:
        """No value moves by more when its sums are taken in another order; 0 where the bound on all
        inputs has it."""
        return 0.0

    def rounding(self, sums: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move each value."""
        return np.zeros(len(sums))

    def largest_rounding(self, sums: NDArray[Any]) -> float:
        """The largest of all rows, or of some of too many."""
        return 0.0

    def loses_digits(self) -> bool:
        """Whether changes would take large entries of `base` away again."""
        return False

    @cached_property
    def base(self) -> NDArray[Any]:
        """The sums of the string of zeros."""
        return self.always + self.zero_sums()

    @cached_property
    def cancels(self) -> bool:
        """Whether sums are taken of what each bit chooses, and not of changes."""
        return self.loses_digits()

    def sums(self, rows: Any) -> NDArray[Any]:
        """Sums of each row of bits (m, T), an array or sparse, block by block."""
        sparse, length = not isinstance(rows, np.ndarray), self.length
        out = np.zeros((rows.shape[0], len(self.always)), dtype=self.always.dtype)
        step = max(1, BLOCK_ENTRIES // (length if sparse else min(max(length, 1), BLOCK_POSITIONS)))
        for top in range(0, len(out), step):
            block = rows[top : top + step]
            block = block.toarray() if sparse else block
            for left in range(0, length, BLOCK_POSITIONS):
                here = slice(left, left + BLOCK_POSITIONS)
                bits = block[:, here]
                added = (
                    self.chosen(bits, here)
                    if self.cancels
                    else self.changes(bits.astype(out.dtype), here)
                )
                out[top : top + step] += added
        return out + (self.always if self.cancels else self.base)

    def settings_sums(self, indices: tuple[int, ...], settings: NDArray[np.uint8]) -> NDArray[Any]:
        """Sums for each setting of the bits in ``indices``, without the other positions."""
        return self.always + self.chosen(settings, list(indices))

    def enumerate_sums(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Sums of ALL 2^T inputs in order, in blocks, each with the number of its first input.

        The first bit is most significant. The low half is enumerated once; the rest is additions.
        """
        low = min(ENUMERATED_BITS, self.length)
        high = self.length - low
        ends = self.chosen(all_bits(low), slice(high, None))
        step = max(1, BLOCK_ENTRIES // (4 * ends.size))
        starts = self.always + self.chosen(all_bits(high), slice(0, high))
        for first in range(0, len(starts), step):
            block = starts[first : first + step, None] + ends[None]
            yield first << low, block.reshape(-1, ends.shape[1])
