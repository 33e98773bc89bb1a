"""A network in one precision, run without writing its tokens out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Batch = tuple[NDArray[Any], Callable[[int], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class Trials:
    """What is run when not all 2^T inputs can be.

    Args:
        tried: the bits that are set, in increasing order.
        settings: to what, shape (settings, tried).
        patterns: to what all bits are set first, shape (patterns, T).
        method: in words.
    """

    tried: tuple[int, ...]
    settings: NDArray[np.uint8]
    patterns: NDArray[Any]
    method: str


class Runner(ABC):
    """From bits to states, what the lookups see of an input, and from states to values."""

    @abstractmethod
    def states(self, rows: Any) -> NDArray[Any]:
        """Of every row of bits (m, T), an array or sparse in CSR form."""

    @abstractmethod
    def all_states(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Of ALL 2^T inputs in order, in blocks, each with the number of its first input."""

    @abstractmethod
    def batches(self, trials: Trials) -> Iterator[Batch]:
        """Of all settings, for one choice of the other bits after the other, with a function that
        gives these for a row."""

    @abstractmethod
    def outputs(self, states: NDArray[Any]) -> NDArray[Any]:
        """The values, shape (m,)."""

    def most_rounding(self) -> float:
        """No value moves by more when its sums are taken in another order."""
        return 0.0

    def rounding(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move each value; 0 where the bound on all inputs has it."""
        return np.zeros(len(states))

    def largest_rounding(self, states: NDArray[Any]) -> float:
        """The largest of these."""
        return 0.0
