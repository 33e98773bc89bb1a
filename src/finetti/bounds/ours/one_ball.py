"""Counting parameters: all weights of a network as one vector in one Euclidean ball."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from finetti.bounds.covering.ball_cover import log_count_cover
from finetti.bounds.covering.dudley import Dudley, dudley_quadrature
from finetti.bounds.ours.cover_allocation import WeightCover, WeightError
from finetti.bounds.ours.weight_classes import MatrixWeights, WeightClass
from finetti.bounds.value import Term, log_of, summed
from finetti.core.numerics.extremes import smallest_of
from finetti.core.numerics.logspace import log_sum


@dataclass(frozen=True)
class OneBallComposition(WeightCover):
    """log N(ε) ≤ P·log(1 + 2ΛR/ε): P parameters in a ball of radius R that move the output Λ-fold

        Λ² = Σ_j (a_jρ_j)²,   R² = Σ_j ‖W_j‖_F²

    because ‖ΔW_j‖ ≤ ‖ΔW_j‖_F and Σ_j a_jρ_j‖ΔW_j‖_F ≤ Λ‖(ΔW_j)_j‖ (Cauchy–Schwarz). A matrix of
    rank r ≤ d₁d₂/(d₁ + d₂) is a product UVᵀ with ‖U‖, ‖V‖ ≤ √B and ‖U‖_F², ‖V‖_F² ≤ its nuclear
    norm: r(d₁ + d₂) parameters, each factor with the multiplier √B·a_jρ_j. What is more than ε/Λ
    apart in the class itself is a cover inside it.

    Args:
        parts: all weights.
        log_lipschitz: log Λ; None: as above.

    >>> square = MatrixWeights(rows=8, columns=8, frobenius_norm=1.0)
    >>> found = OneBallComposition((WeightError("W", None, math.log(2.0), square),))
    >>> round(math.exp(found.log_log_cover(math.log(0.2))), 9)                # 64·log(1 + 2·2/0.2)
    194.849436014
    """

    log_lipschitz: float | None = None

    @cached_property
    def covered(self) -> tuple[WeightError, ...]:
        """The parts that have to be covered; with a Λ of one's own, all that are trained."""
        if self.log_lipschitz is None:
            return super().covered
        return tuple(each for each in self.parts if each.weights.trained)

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """How many each part has."""
        return tuple(_parameters(each.weights) for each in self.covered)

    @cached_property
    def log_multiplier(self) -> float:
        """log Λ."""
        if self.log_lipschitz is not None:
            return self.log_lipschitz
        squares = []
        for each in self.covered:
            factored = _rank(each.weights) is not None
            share = math.log(2) + log_of(each.weights.norm) if factored else 0.0
            squares.append(2 * each.log_factor + share)
        return float(log_sum(squares)) / 2

    @cached_property
    def log_radius(self) -> float:
        """log R."""
        return float(log_sum([_log_square(each.weights) for each in self.covered])) / 2

    @property
    def log_spread(self) -> float:
        """log ΛR: no function of the class is farther from the one with all Δ = 0."""
        return self.log_multiplier + self.log_radius if self.covered else -math.inf

    def log_log_cover(self, log_resolution: ArrayLike) -> Any:
        """log log N(ε)."""
        return log_count_cover(sum(self.parameters), self.log_spread, log_resolution)

    def dudley(self, log_range: float, log_samples: float) -> Dudley:
        """Dudley's integral by quadrature: this cover has no steps."""
        return dudley_quadrature(self.log_log_cover, log_range, log_samples)

    def terms(self, log_resolution: float) -> tuple[float, tuple[Term, ...]]:
        """log log N, shared between the weights as the parameters are."""
        if not self.covered:
            return -math.inf, ()
        each = float(log_count_cover(1, self.log_spread, log_resolution))
        return summed(
            Term("log N by its parameters", part.layer, part.name, each + math.log(count))
            for part, count in zip(self.covered, self.parameters, strict=True)
        )


def _rank(weights: WeightClass) -> int | None:
    """r of a matrix that has fewer parameters as a product."""
    rank = weights.rank if isinstance(weights, MatrixWeights) else None
    few = rank is not None and rank * (weights.rows + weights.columns) < weights.parameters
    return rank if few else None


def _parameters(weights: WeightClass) -> int:
    rank = _rank(weights)
    return weights.parameters if rank is None else rank * (weights.rows + weights.columns)


def _log_square(weights: WeightClass) -> float:
    """log of the largest ‖W‖_F², or of ‖U‖_F² + ‖V‖_F²."""
    rank = _rank(weights)
    if rank is None or not isinstance(weights, MatrixWeights):
        return 2 * weights.log_frobenius
    nuclear = math.inf if weights.nuclear_norm is None else log_of(weights.nuclear_norm)
    return math.log(2) + smallest_of(nuclear, log_of(weights.norm) + math.log(rank))
