"""What the proofs of both families of networks share: inputs to run, and rows of a certificate."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.certificate import ReaderRow
from finetti.boolean.embeddings.token_embedding import Embedding
from finetti.boolean.language.rule import MAX_SETTING_BITS, all_bits
from finetti.boolean.network.sum_tables import SumTables
from finetti.core.numerics.extremes import smallest_of

MAX_WORK = 2 * 10**10  # multiplications of all chosen inputs
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


def setting_batches(tables: SumTables, inputs: ChosenInputs) -> Iterator[Batch]:
    """Sums of all settings, for one choice of the other bits after the other, with a function that
    gives these for a row."""
    inside = tables.settings_sums(inputs.tried, inputs.settings)
    outside = tables.outside_sums(inputs.tried, inputs.patterns)
    for row, sums in zip(inputs.patterns, outside, strict=True):
        yield inside + sums, lambda _, row=row: row


def all_settings(n_bits: int, limit: int) -> tuple[NDArray[np.uint8], str] | None:
    """All 2^s settings of the relevant bits, if these are few."""
    if n_bits <= MAX_SETTING_BITS and 2**n_bits <= limit:
        return all_bits(n_bits), f"all 2^{n_bits} settings of the relevant bits"
    return None


def mass_and_lead(meant: float, least: float, others: NDArray[np.float64]) -> tuple[float, float]:
    """The attention on what a head should read, and the lead of its scores, from exponentials."""
    top = float(others.max(initial=0.0))
    lead = math.log(least / top) if top > 0 and least > 0 else math.inf
    return (meant / (meant + float(others.sum())) if meant > 0 else 0.0), lead


def reader_row(
    embedding: Embedding,
    sizes: list[int],
    errors: NDArray[np.float64],
    seen: list[tuple[float, float]],
    **known: Any,
) -> ReaderRow:
    """The row of one reader, from what was measured of each of its reads: how many tokens it should
    read, its largest error, and its `mass_and_lead`."""
    worst = int((errors * sizes).argmax())
    masses, leads = zip(*seen, strict=True)
    return ReaderRow(
        separation=embedding.separation(sizes[worst], True),
        tolerance=embedding.tolerance(sizes[worst], True),
        head_error=float(errors[worst]),
        score_gap=smallest_of(leads),
        attention_mass=smallest_of(masses),
        **known,
    )
