"""Empirical risk under limits of norms, and a lower bound of its minimum from any point.

P(V) = Σ_j p_j l(⟨φ_j, V⟩, y_j), p_j the shares of the rows. For the slopes α_j = ∂l(f_j, y_j)/∂f of
any outputs f_j at all, Fenchel's duality gives for every V within the limits

    P(V) ≥ Σ_j p_j (l(f_j, y_j) − α_j f_j) − h(−Σ_j p_j α_j φ_j)

with h the support function of the limits; the bracket is −l*(α_j). What P(V) lies above such a
bound is a duality gap: how far from optimal V is at most.
"""

from dataclasses import dataclass

import numpy as np

from finetti.core.numerics.extremes import largest_of
from finetti.estimators.losses import Loss
from finetti.estimators.norm_limits import BlockLimits
from finetti.estimators.ridge import Floats


@dataclass(frozen=True)
class ConstrainedRisk:
    """P and the limits of V.

    Args:
        features: φ_j, (n, M·k), block after block.
        targets: y_j, (n,).
        shares: p_j, (n,), of sum 1.
        loss: l.
        limits: of the norms of the blocks.
        n_blocks: M.
    """

    features: Floats
    targets: Floats
    shares: Floats
    loss: Loss
    limits: BlockLimits
    n_blocks: int

    def value(self, outputs: Floats) -> float:
        """P where the outputs are these."""
        return float(self.shares @ self.loss.values(outputs, self.targets))

    def value_of_mean(self) -> float:
        """P of the constant that is the mean of the targets, which needs an intercept."""
        return self.value(np.full(len(self.targets), self.shares @ self.targets))

    def gradient(self, outputs: Floats) -> tuple[Floats, float]:
        """∇P, flat, and the lower bound of the minimum."""
        slopes = self.shares * self.loss.slopes(outputs, self.targets)
        gradient = slopes @ self.features
        support = self.limits.support(self.blocks(gradient))
        return gradient, self.value(outputs) - float(slopes @ outputs) - support

    def blocks(self, flat: Floats) -> Floats:
        """(M, k)."""
        return flat.reshape(self.n_blocks, -1)

    def project(self, flat: Floats) -> Floats:
        """The nearest values within the limits, flat."""
        return self.limits.project(self.blocks(flat)).ravel()


class Best:
    """The best values and the best lower bound that were seen."""

    def __init__(self, risk: ConstrainedRisk):
        self.risk = risk
        self.values = np.zeros(risk.features.shape[1])
        # Losses are at least 0.
        self.objective, self.lower = risk.value(np.zeros(len(risk.targets))), 0.0

    @property
    def gap(self) -> float:
        """Between the two."""
        return largest_of(self.objective - self.lower, 0.0)

    def see(self, values: Floats, objective: float) -> None:
        """Values within the limits."""
        if objective < self.objective:
            self.values, self.objective = values, objective

    def gradient(self, outputs: Floats) -> Floats:
        """∇P; its bound is kept."""
        gradient, bound = self.risk.gradient(outputs)
        self.lower = largest_of(self.lower, bound)
        return gradient
