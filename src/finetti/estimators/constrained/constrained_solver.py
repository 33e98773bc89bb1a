"""Empirical risk under limits of norms, minimized with a certificate of optimality.

P(V) = Σ_j p_j l(⟨φ_j, V⟩, y_j), p_j the shares of the rows. For the slopes α_j = ∂l(f_j, y_j)/∂f of
any outputs f_j at all, Fenchel's duality gives for every V within the limits

    P(V) ≥ Σ_j p_j (l(f_j, y_j) − α_j f_j) − h(−Σ_j p_j α_j φ_j)

with h the support function of the limits; the bracket is −l*(α_j). What P(V) lies above such a
bound is a duality gap: how far from optimal V is at most.
"""

from dataclasses import dataclass

import numpy as np

from finetti.core.numerics.extremes import largest_of
from finetti.display.progress import Progress, late_progress
from finetti.estimators.constrained.losses import Loss
from finetti.estimators.constrained.norm_limits import BlockLimits
from finetti.estimators.ridge_system import Floats

GROWTH = 1.1  # of the step, tried at every iteration; halved where it is too long


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


@dataclass(frozen=True)
class Minimum:
    """What was found.

    Args:
        blocks: V, (M, k).
        objective: P(V).
        gap: P(V) less a lower bound of the minimum.
        n_iter: iterations.
    """

    blocks: Floats
    objective: float
    gap: float
    n_iter: int


def minimize_constrained(
    risk: ConstrainedRisk, *, tol: float, max_iter: int, name: str = "fit"
) -> Minimum:
    """V by projected gradients that are taken ahead of it, with a momentum.

    Args:
        risk: P and its limits.
        tol: the duality gap at which to stop.
        max_iter: iterations at most; the gap says what was reached.
        name: on the progress line.

    Reference: Beck and Teboulle (2009), restarted as in O'Donoghue and Candès (2015).
    """
    features = risk.features
    best = here = ahead = np.zeros(features.shape[1])
    outputs_here = outputs_ahead = np.zeros(len(features))
    # Losses are at least 0.
    objective, lower, gap = risk.value(outputs_here), 0.0, np.inf
    momentum, step, done = 1.0, 1.0, 0
    with late_progress(name, max_iter, "iterations") as report:
        for done in range(1, max_iter + 1):
            gradient, bound = risk.gradient(outputs_ahead)
            lower, risk_ahead = largest_of(lower, bound), risk.value(outputs_ahead)
            step *= GROWTH
            while True:
                there = risk.project(ahead - step * gradient)
                outputs_there = features @ there
                found, move = risk.value(outputs_there), there - ahead
                linear = float(gradient @ move)
                # The last digits are rounding, and shall not shorten the step.
                rounding = 8 * np.finfo(float).eps * (abs(risk_ahead) + abs(linear))
                limit = risk_ahead + linear + float(move @ move) / (2 * step) + rounding
                if found <= limit or step < 1e-100:
                    break
                step /= 2
            if found < objective:
                best, objective = there, found
            gap = largest_of(objective - lower, 0.0)
            if gap <= tol:
                break
            if float(move @ (there - here)) < 0:
                momentum = 1.0  # it pointed uphill
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            weight = (momentum - 1) / following
            ahead = there + weight * (there - here)
            outputs_ahead = outputs_there + weight * (outputs_there - outputs_here)
            here, outputs_here, momentum = there, outputs_there, following
            report(Progress(done, 0, f"gap {gap:.1e}, goal {tol:.0e}"))
    return Minimum(risk.blocks(best), objective, gap, done)
