"""Covers of a network from covers of its matrices: the error is shared by Lemma A.8."""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from finetti.bounds.covering.dudley import Dudley, dudley_quadrature
from finetti.bounds.covering.linear_covering import log_log_linear_cover
from finetti.bounds.value import Term, summed
from finetti.core.errors import bad_argument
from finetti.core.numerics.logspace import log_sum


def allocate(
    log_costs: ArrayLike, log_weights: ArrayLike, log_budget: float = 0.0
) -> tuple[float, NDArray[np.float64]]:
    """min Σ α_i/x_i² subject to Σ β_i x_i = C, x_i > 0: the log of γ³/C², and the log x_i

        γ = Σ α_i^{1/3} β_i^{2/3},   x_i = (C/γ)(α_i/β_i)^{1/3}               Lemma A.8, edelman2022

    Printed without x_i > 0, where the infimum is 0 (erratum 14).

    Args:
        log_costs: log α_i; a part that costs nothing (−∞) gets nothing.
        log_weights: log β_i.
        log_budget: log C.

    >>> least, shares = allocate(np.log([1.0, 8.0]), np.log([1.0, 1.0]))
    >>> round(np.exp(least), 9), np.exp(shares).round(9)
    (np.float64(27.0), array([0.33333333, 0.66666667]))
    """
    costs = np.asarray(log_costs, dtype=np.float64)
    weights = np.asarray(log_weights, dtype=np.float64)
    if costs.shape != weights.shape or costs.ndim != 1 or costs.size == 0:
        raise bad_argument("log_weights", "allocate", "as many as the costs", weights.shape)
    log_gamma = float(log_sum(costs / 3 + 2 * weights / 3))
    return 3 * log_gamma - 2 * log_budget, log_budget - log_gamma + (costs - weights) / 3


@dataclass(frozen=True)
class Matrix:
    """One trained matrix of a network."""

    name: str  # as "W_V"
    layer: int | None  # from 1; None where there is only one
    log_cost: float  # log c, c = (factor of its error)·(outputs)·(column norm)·(input norm)
    outputs: int  # d_j, how many columns
    log_points: float  # log N_j, on how many points it is covered


@dataclass(frozen=True)
class Composition:
    """The cover of a network whose output moves by at most Σ_j (multiplier_j · error of matrix j).

        log N_∞ ≤ 36 (γ²/ε²) Σ_j c_j^{2/3} log(2⌈4γc_j^{1/3}/(√d_j ε) + 2⌉N_j + 1),  γ = Σ c_j^{2/3}

    Matrix j gets the part c_j^{2/3}/γ of the error, which is best for the leading part
    (Lemma A.8). The scaling form is γ³/ε² · log N.

    >>> parts = (Matrix("W_V", None, math.log(8.0), 4, math.log(1e4)),)
    >>> cover = Composition(parts)
    >>> round(math.exp(cover.log_gamma), 9), round(math.exp(cover.log_scaling(0.0, 0.0)), 6)
    (4.0, 64.0)
    """

    matrices: tuple[Matrix, ...]
    log_spread: ClassVar[float] = math.inf  # only the range of the functions is known

    @cached_property
    def log_costs(self) -> NDArray[np.float64]:
        """log c_j."""
        return np.array([matrix.log_cost for matrix in self.matrices])

    @cached_property
    def log_gamma(self) -> float:
        """log γ."""
        return float(log_sum(self.log_costs * (2 / 3)))

    @cached_property
    def log_outputs(self) -> NDArray[np.float64]:
        """log d_j."""
        return np.array([math.log(matrix.outputs) for matrix in self.matrices])

    @cached_property
    def log_points(self) -> NDArray[np.float64]:
        """log N_j."""
        return np.array([matrix.log_points for matrix in self.matrices])

    def log_parts(self, log_resolution: ArrayLike, smooth: bool = False) -> NDArray[np.float64]:
        """The log of each matrix's part of log N_∞, on the last axis; for any number of log ε."""
        finer = -np.asarray(log_resolution, dtype=np.float64)[..., None]
        costs, gamma = self.log_costs, self.log_gamma
        if gamma == -math.inf:  # nothing is trained, or nothing reaches the output
            return finer * 0 + costs
        # The part c^{2/3}/γ of ε leaves c^{1/3}γ/ε of c/ε.
        ratio = gamma + costs / 3 + finer
        return log_log_linear_cover(ratio, self.log_outputs, self.log_points, smooth)

    def log_log_cover(self, log_resolution: ArrayLike, smooth: bool = False) -> Any:
        """log log N_∞ at ε; for any number of log ε."""
        return log_sum(self.log_parts(log_resolution, smooth), axis=-1)

    def dudley(self, log_range: float, log_samples: float) -> Dudley:
        """Dudley's integral of √log N_∞, with the ceilings replaced by what is above them."""
        return dudley_quadrature(partial(self.log_log_cover, smooth=True), log_range, log_samples)

    def log_scaling(self, log_resolution: float, log_log_points: float) -> float:
        """The log of γ³/ε² · log N."""
        return 3 * self.log_gamma - 2 * log_resolution + log_log_points

    def terms(self, log_resolution: float) -> tuple[float, tuple[Term, ...]]:
        """log log N_∞, and what each matrix adds to log N_∞."""
        parts = self.log_parts(log_resolution)
        return summed(
            Term("log covering number", matrix.layer, matrix.name, float(part))
            for matrix, part in zip(self.matrices, parts, strict=True)
        )

    def scaling_terms(
        self, log_resolution: float, log_log_points: float
    ) -> tuple[float, tuple[Term, ...]]:
        """The scaling form, and its parts c_j^{2/3}γ²/ε² · log N."""
        common = 2 * (self.log_gamma - log_resolution) + log_log_points
        return summed(
            Term("scaling", matrix.layer, matrix.name, common + matrix.log_cost * (2 / 3))
            for matrix in self.matrices
        )
