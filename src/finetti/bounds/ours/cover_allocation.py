"""Covers of a network from covers of its weights, for all inputs at once: nothing depends on T."""

import abc
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from finetti.bounds.covering.dudley import Dudley, dudley_upper_sum
from finetti.bounds.ours.weight_classes import CoverTable, WeightClass
from finetti.bounds.value import Term, log_of, summed
from finetti.core.numerics.logspace import log_sum

_STEPS = 40  # of the search for an allocation; it stops where nothing is gained
_WINDOW = 0.5  # over which the steps of a cover are smoothed, in log x
_COARSE = 1.0  # a new allocation after so much log ε; in between the last one is kept


@dataclass(frozen=True)
class WeightError:
    """Weights of a network: what their error is multiplied by on its way to the output.

    Args:
        name, layer: as "W_QK", and from 1; None where there is only one.
        log_multiplier: log a_j, all that comes after them and their local factor.
        weights: their class.
        log_radius: log ρ_j, how long what they read can be; 0 where a_j contains it.
    """

    name: str
    layer: int | None
    log_multiplier: float
    weights: WeightClass
    log_radius: float = 0.0

    @property
    def log_factor(self) -> float:
        """log a_jρ_j: how far the output moves per unit of the weights."""
        return self.log_multiplier + self.log_radius


@dataclass(frozen=True)
class WeightCover(abc.ABC):
    """log N(ε) of a network from the classes of its weights, for all inputs at once.

    Args:
        parts: all weights; those that are not trained, or do not reach the output, cost nothing.
    """

    parts: tuple[WeightError, ...]

    @cached_property
    def covered(self) -> tuple[WeightError, ...]:
        """The parts that have to be covered."""
        return tuple(
            each
            for each in self.parts
            if each.weights.trained and each.weights.norm > 0 and each.log_factor > -math.inf
        )

    @property
    @abc.abstractmethod
    def log_spread(self) -> float:
        """log of how far a function of the class can be from the one with all Δ = 0."""

    @abc.abstractmethod
    def log_log_cover(self, log_resolution: ArrayLike) -> Any:
        """log log N(ε); −∞ where one function is enough."""

    @abc.abstractmethod
    def terms(self, log_resolution: float) -> tuple[float, tuple[Term, ...]]:
        """log log N, and what each of the weights adds to log N."""

    def dudley(self, log_range: float, log_samples: float) -> Dudley:
        """Dudley's integral of √log N by an upper sum, for covers that may have steps."""
        return dudley_upper_sum(self.log_log_cover, log_range, log_samples)


@dataclass(frozen=True)
class LengthFreeComposition(WeightCover):
    """log N(ε) ≤ Σ_j log N_j(x_j) for any x_j > 0 with Σ_j a_jρ_jx_j = ε

    if the output moves by at most Σ_j a_jρ_jx_j where weights j move by x_j. Everything is in
    logarithms: factors a_jρ_j of 10^40 and more are nothing special.

    >>> from finetti.bounds.ours.weight_classes import MatrixWeights
    >>> square = MatrixWeights(rows=8, columns=8)
    >>> one = LengthFreeComposition((WeightError("W", None, math.log(2.0), square),))
    >>> round(math.exp(one.log_log_cover(math.log(0.2))), 9)          # x = 0.1
    194.849436014
    """

    @cached_property
    def _table(self) -> CoverTable:
        return CoverTable(tuple(each.weights for each in self.covered))

    @cached_property
    def _log_factors(self) -> NDArray[np.float64]:
        return np.array([each.log_factor for each in self.covered])

    @property
    def log_spread(self) -> float:
        """log Σ_j a_jρ_jB_j: no function of the class is farther from the one with all Δ = 0."""
        reach = [each.log_factor + log_of(each.weights.norm) for each in self.covered]
        return float(log_sum(reach)) if reach else -math.inf

    def resolutions(self, log_resolution: float) -> NDArray[np.float64]:
        """log x_j of the parts that cost anything, as `allocation` finds them."""
        return self.allocation(log_resolution) + log_resolution - self._log_factors

    def allocation(self, log_resolution: float) -> NDArray[np.float64]:
        """log of the part of ε that each of the weights gets; together they are 1.

        At the best allocation a part is proportional to how fast its log N_j falls with log x_j;
        that is iterated from D_j/ΣD, which is best where all are counted, and the best one kept. A
        poor allocation is a bound, too.
        """
        kept = self._allocations.get(log_resolution)
        if kept is not None:
            return kept
        shares = np.log(self._table.parameters / self._table.parameters.sum())
        best, least, idle = shares, math.inf, 0
        for _ in range(_STEPS):
            log_x = shares + log_resolution - self._log_factors
            here, below, above = self._table.best(
                np.stack([log_x, log_x - _WINDOW, log_x + _WINDOW])
            )
            total = here.sum()
            idle = 0 if total < least * (1 - 1e-4) else idle + 1
            if total < least:
                best, least = shares, total
            if idle == 4:
                break
            slope = np.log(np.maximum(below - above, 1e-9 * (below - above).sum()) + 1e-300)
            shares = (shares + slope - np.logaddexp.reduce(slope)) / 2
            shares = shares - np.logaddexp.reduce(shares)
        self._allocations[log_resolution] = best
        return best

    @cached_property
    def _allocations(self) -> dict[float, NDArray[np.float64]]:
        return {}

    def log_numbers(self, log_resolution: ArrayLike) -> NDArray[np.float64]:
        """log N_j(x_j) of the parts that cost anything, on the last axis; for any number of log ε.

        Many log ε share their allocations, which are found at every whole one.
        """
        log_resolution = np.asarray(log_resolution, dtype=np.float64)
        flat = log_resolution.ravel()
        if flat.size == 1:
            shares = self.allocation(float(flat[0]))[None]
        else:
            coarse, where = np.unique(np.round(flat / _COARSE) * _COARSE, return_inverse=True)
            shares = np.stack([self.allocation(float(each)) for each in coarse])[where]
        log_x = shares + flat[:, None] - self._log_factors
        return self._table.best(log_x).reshape(*log_resolution.shape, -1)

    def log_log_cover(self, log_resolution: ArrayLike) -> Any:
        """log log N(ε); −∞ where one function is enough."""
        if not self.covered:
            return np.asarray(log_resolution, dtype=np.float64) * 0 - np.inf
        array = np.asarray(log_resolution, dtype=np.float64)
        key = array.tobytes()
        if key not in self._covers:
            with np.errstate(divide="ignore"):
                self._covers[key] = np.log(self.log_numbers(array).sum(axis=-1))[()]
        return self._covers[key]

    @cached_property
    def _covers(self) -> dict[bytes, Any]:
        """Every n of an inversion asks for the same log ε."""
        return {}

    def terms(self, log_resolution: float) -> tuple[float, tuple[Term, ...]]:
        """log log N, and what each of the weights adds to log N, named with its cover."""
        if not self.covered:
            return -math.inf, ()
        every = self._table.all(self.resolutions(log_resolution)[None])[:, 0]
        chosen = every.argmin(axis=0)
        return summed(
            Term(f"log N by {self._table.NAMES[cover]}", each.layer, each.name, log_of(float(part)))
            for each, cover, part in zip(self.covered, chosen, every.min(axis=0), strict=True)
        )
