"""What verifies networks: inputs to run, a bound on all of them, the rows of a certificate."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import NormBound, ReaderRow
from finetti.boolean.explanation import Reading
from finetti.boolean.language.rule import MAX_SETTING_BITS, BooleanFunction, all_bits
from finetti.boolean.network.sum_tables import SumTables
from finetti.bounds.value import BoundValue
from finetti.core.numbers import smallest_of

MAX_WORK = 2 * 10**10  # multiplications of all test inputs
MAX_SETTINGS_BYTES = 2**27  # of a list of settings
N_RANDOM = 64
Batch = tuple[NDArray[Any], Callable[[int], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class ChosenInputs:
    """What is run when not all 2^T inputs can be."""

    tried: tuple[int, ...]  # the bits that are set, in increasing order
    settings: NDArray[np.uint8]  # to what, shape (settings, tried)
    patterns: NDArray[Any]  # to what all bits are set first, shape (patterns, T)
    method: str  # in words


class InputBound(NamedTuple):
    """What is known of ALL 2^T inputs."""

    error: float | None  # the largest error, relative to the largest value; None if unknown
    reason: str = ""  # why it is unknown, in half a sentence
    rounding: float = 0.0  # how much of it is rounding in the lookups


class Reads(NamedTuple):
    """What the reads of one reader were measured to be, one entry per head."""

    sizes: list[int]  # how many tokens it should read
    errors: NDArray[np.float64]  # the largest distance of what it reads from its points
    masses: list[float]  # the least attention on what it should read
    leads: list[float]  # the least lead of its scores
    scale: float  # the largest R


class Verifier(ABC):
    """Verifies the networks of one family."""

    network: Any

    @abstractmethod
    def comparable(self, function: BooleanFunction) -> BooleanFunction:
        """A rule in the form that the network is compared with."""

    @property
    @abstractmethod
    def work_per_input(self) -> int:
        """Multiplications that one input takes after the sums over its bits."""

    @abstractmethod
    def choose_inputs(self, function: BooleanFunction) -> ChosenInputs:
        """What is run against a rule, where not all inputs can be."""

    def batches(self, tables: SumTables, inputs: ChosenInputs) -> Iterator[Batch]:
        """Sums of all settings, for one choice of the other bits after the other, with a function
        that gives these for a row."""
        inside = tables.settings_sums(inputs.tried, inputs.settings)
        outside = tables.outside_sums(inputs.tried, inputs.patterns)
        for row, sums in zip(inputs.patterns, outside, strict=True):
            yield inside + sums, lambda _, row=row: row

    def n_batches(self, tables: SumTables, inputs: ChosenInputs) -> int:
        """How many of them there are."""
        return len(inputs.patterns)

    @abstractmethod
    def bound_all_inputs(
        self, function: BooleanFunction, tried: tuple[int, ...] | None
    ) -> InputBound:
        """The error on all inputs against a rule; ``tried`` bits were set in those run, if any."""

    def most_rounding(self, tables: Any) -> float:
        """No value moves by more when its sums are taken in another order; 0 where the bound on all
        inputs has it."""
        return 0.0

    def rounding(self, tables: Any, sums: NDArray[Any]) -> NDArray[np.float64]:
        """How far rounding alone may move each value."""
        return np.zeros(len(sums))

    def largest_rounding(self, tables: Any, sums: NDArray[Any]) -> float:
        """The largest of all rows, or of some of too many."""
        return 0.0

    @property
    @abstractmethod
    def route(self) -> str:
        """The lemmas that built the network."""

    @property
    @abstractmethod
    def readers(self) -> str:
        """Which tokens read, in words."""

    @property
    @abstractmethod
    def reader_rows(self) -> tuple[ReaderRow, ...]:
        """Why each reader is right, as was measured."""

    @abstractmethod
    def norms(self, margin: float) -> tuple[NormBound, ...]:
        """The norms of all blocks beside the bounds of the embedding's lemma, the largest over the
        heads of each (one above its bound, if any)."""

    @abstractmethod
    def capacities(self) -> tuple[BoundValue, ...]:
        """log N_∞ of all heads with the norms of each block, at the resolution of its lookup."""

    @abstractmethod
    def readings(
        self, bits: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[Reading, ...], ...], dict[str, float]]:
        """What is read on one input, block by block; and the readers with their values, the last of
        which is the network's."""

    def row(self, text: str, level: int, sparsity: int, reads: Reads) -> ReaderRow:
        """The row of one reader, from what was measured of its reads."""
        embedding = self.network.embedding
        worst = int((reads.errors * reads.sizes).argmax())
        return ReaderRow(
            text=text,
            level=level,
            sparsity=sparsity,
            separation=embedding.separation(reads.sizes[worst], True),
            tolerance=embedding.tolerance(reads.sizes[worst], True),
            head_error=float(reads.errors[worst]),
            score_scale=reads.scale,
            score_gap=smallest_of(reads.leads),
            attention_mass=smallest_of(reads.masses),
        )


def all_settings(n_bits: int, limit: int) -> tuple[NDArray[np.uint8], str] | None:
    """All 2^s settings of the relevant bits, if these are few."""
    if n_bits <= MAX_SETTING_BITS and 2**n_bits <= limit:
        return all_bits(n_bits), f"all 2^{n_bits} settings of the relevant bits"
    return None
