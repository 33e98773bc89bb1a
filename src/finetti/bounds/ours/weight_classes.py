"""Trained weights as a class: sizes, norms, and the smallest of the covers that they allow."""

import abc
import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.bounds import description as fields
from finetti.bounds.ours.spectral_covers import (
    LOG_2,
    POWERS,
    count_cover,
    maurey_cover,
    rank_cover,
    schatten_cover,
)
from finetti.bounds.value import log_of
from finetti.core.arguments import as_norm, as_whole
from finetti.core.checked_fields import checked
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import smallest_of


class WeightClass(fields.Description, abc.ABC, kw_only=True):
    """All weights W₀ + Δ with a fixed W₀ and bounds on the norms of Δ.

    Args:
        rows, columns: d₁ and d₂.
        norm: B ≥ ‖Δ‖; of weights that are not trained, ‖W₀ + Δ‖ itself.
        base_norm: ‖W₀‖, fixed before training (fine-tuning); 0 where all of W is trained.
        trained: False for weights that no training moves: they cost nothing.
    """

    rows: int = checked(as_whole)
    columns: int = checked(as_whole)
    norm: float = fields.norm(1.0)
    base_norm: float = checked(as_norm, 0.0)
    trained: bool = True

    @property
    def log_size(self) -> float:
        """log of ‖W₀‖ + B, which no member of the class exceeds, nor any of the covers."""
        return log_of(self.norm + self.base_norm)

    @property
    def parameters(self) -> int:
        """D = d₁·d₂."""
        return self.rows * self.columns

    @property
    @abc.abstractmethod
    def log_frobenius(self) -> float:
        """log of the largest ‖Δ‖_F that the known norms allow."""

    @cached_property
    def log_norms(self) -> tuple[float, ...]:
        """log B, log B₁, log B_p for every power, as `CoverTable` has them; ∞: not known."""
        return (log_of(self.norm), *[np.inf] * (1 + len(POWERS)))

    @property
    def limit(self) -> float:
        """The largest rank; ∞: not known."""
        return np.inf


class RowWeights(WeightClass, kw_only=True):
    """A table in the norm of its longest row: embeddings; a bias is one row.

    >>> table = RowWeights(rows=100, columns=64, norm=0.5)
    >>> table.parameters, round(float(np.exp(table.log_frobenius)), 9)
    (6400, 5.0)
    """

    @property
    def log_frobenius(self) -> float:
        """log of √d₁·B: every row may be the longest."""
        return log_of(self.norm) + math.log(self.rows) / 2


class GainWeights(WeightClass, kw_only=True):
    """The gain of a normalization, one row, in the norm of its largest entry.

    >>> round(float(np.exp(GainWeights(rows=1, columns=64, norm=0.5).log_frobenius)), 9)
    4.0
    """

    @property
    def log_frobenius(self) -> float:
        """log of √D·B: every entry may be the largest."""
        return log_of(self.norm) + math.log(self.parameters) / 2


class MatrixWeights(WeightClass, kw_only=True):
    """A matrix in spectral norm; every further norm allows one more cover.

    Args:
        entry_norm: B₁ ≥ Σ|w_ij|.
        frobenius_norm, nuclear_norm: the Schatten norms B_p for p = 2 and 1.
        half_norm, quarter_norm: those for p = 1/2 and 1/4.
        rank: the largest rank; d_k for the product of a head, r for LoRA.

    >>> weights = MatrixWeights(rows=8, columns=8, norm=0.5, nuclear_norm=1.0)
    >>> CoverTable((weights,)).best(np.log([[0.25], [1.0]])).round(3)     # counted, and of rank 1
    array([[103.004],
           [ 25.751]])
    """

    entry_norm: float | None = fields.norm(None)
    frobenius_norm: float | None = fields.norm(None)
    nuclear_norm: float | None = fields.norm(None)
    half_norm: float | None = fields.norm(None)
    quarter_norm: float | None = fields.norm(None)
    rank: int | None = checked(as_whole, None)

    @cached_property
    def log_norms(self) -> tuple[float, ...]:
        """log B, log B₁, log B_p for every power; ∞: not known."""
        schatten = self.frobenius_norm, self.nuclear_norm, self.half_norm, self.quarter_norm
        known = (self.norm, self.entry_norm, *schatten)
        return tuple(np.inf if each is None else log_of(each) for each in known)

    @property
    def limit(self) -> float:
        """The largest rank; ∞: not known."""
        return np.inf if self.rank is None else self.rank

    @property
    def log_frobenius(self) -> float:
        """log of the Frobenius norm, or of √rank·B, the smaller."""
        side = smallest_of(self.rows, self.columns, self.limit)
        known = np.inf if self.frobenius_norm is None else log_of(self.frobenius_norm)
        return smallest_of(known, log_of(self.norm) + math.log(side) / 2)


class CoverTable:
    """The covers of many weights at once, each at its own x, all inside the spectral balls.

    A chain multiplies by spectral norms, so that is what a cover has to keep: `count_cover`,
    `rank_cover` and `schatten_cover` do at x, `maurey_cover` (outside) at x/2.
    """

    NAMES = (
        "count",
        "rank",
        "maurey",
        *(f"schatten {power:g}" for power in POWERS),
    )

    def __init__(self, weights: tuple[WeightClass, ...]) -> None:
        if not all(isinstance(each, WeightClass) for each in weights):
            raise bad_argument("weights", "CoverTable", "WeightClass objects", weights)
        self.rows = np.array([each.rows for each in weights], dtype=np.float64)
        self.columns = np.array([each.columns for each in weights], dtype=np.float64)
        self.parameters = self.rows * self.columns
        self._rank = np.array([each.limit for each in weights])
        norms = np.array([each.log_norms for each in weights]).reshape(len(weights), -1)
        self.log_norm, self._log_entries, *self._log_schatten = norms.T

    def all(self, log_resolution: NDArray[np.float64]) -> NDArray[np.float64]:
        """log N by every cover of `NAMES` (first axis); ∞ where its norm is not known."""
        log_x, log_b = log_resolution, self.log_norm
        sizes = self.rows, self.columns, log_b
        found = [count_cover(self.parameters, log_b, log_x)]
        found.append(self._where(self._rank, lambda r: self._low_rank(r, log_x), log_x))
        found.append(
            self._where(
                self._log_entries,
                lambda b: maurey_cover(self.parameters, b, log_x - LOG_2),
                log_x,
            )
        )
        for power, known in zip(POWERS, self._log_schatten, strict=True):
            found.append(
                self._where(
                    known,
                    lambda b, power=power: schatten_cover(*sizes, b, log_x, power),
                    log_x,
                )
            )
        return np.stack(found)

    def best(self, log_resolution: NDArray[np.float64]) -> NDArray[np.float64]:
        """log N by the smallest of the covers."""
        return self.all(log_resolution).min(axis=0)

    def _low_rank(self, rank: NDArray[np.float64], log_x: NDArray[np.float64]) -> Any:
        return rank_cover(rank, self.rows + self.columns, self.log_norm, log_x)

    @staticmethod
    def _where(known: NDArray[np.float64], cover: Any, log_x: NDArray[np.float64]) -> Any:
        """A cover where its norm is known."""
        if np.isposinf(known).all():
            return np.full(log_x.shape, np.inf)
        safe = np.where(np.isposinf(known), 0.0, known)
        return np.where(np.isposinf(known), np.inf, cover(safe))
