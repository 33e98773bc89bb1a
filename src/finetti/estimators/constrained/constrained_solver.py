"""Constrained empirical risk minimization with a certificate of optimality."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from finetti.display.progress import Progress, late_progress
from finetti.estimators.constrained.barrier import newton_steps
from finetti.estimators.constrained.constrained_risk import Best, ConstrainedRisk
from finetti.estimators.ridge_system import Floats

GROWTH = 1.1  # of the step, tried at every iteration; halved where it is too long
# A Newton step costs as much as p/100 gradient steps and more memory, and some fifty do. They take
# over after this many of the others, up to this many features.
NEWTON_AFTER = 200
NEWTON_FEATURES = 8192


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
    """V by accelerated projected gradients, and by Newton's method where these take long.

    Args:
        risk: P and its limits.
        tol: the duality gap at which to stop.
        max_iter: iterations at most; the gap says what was reached.
        name: on the progress line.
    """
    best, done = Best(risk), 0
    steps = accelerated_steps(best)
    with late_progress(name, max_iter, "iterations") as report:
        for done in range(1, max_iter + 1):
            if done == NEWTON_AFTER and risk.features.shape[1] <= NEWTON_FEATURES:
                steps = newton_steps(best)
            if next(steps, None) is None or best.gap <= tol:
                break
            report(Progress(done, 0, f"gap {best.gap:.1e}, goal {tol:.0e}"))
    return Minimum(risk.blocks(best.values), best.objective, best.gap, done)


def accelerated_steps(best: Best) -> Iterator[Floats]:
    """V after every step; gradients are taken ahead of it, with a momentum.

    Reference: Beck and Teboulle (2009), restarted as in O'Donoghue and Candès (2015).
    """
    risk, features = best.risk, best.risk.features
    here = ahead = best.values
    outputs_here = outputs_ahead = features @ here
    momentum, step = 1.0, 1.0
    while True:
        gradient, risk_ahead = best.gradient(outputs_ahead), risk.value(outputs_ahead)
        step *= GROWTH
        while True:
            there = risk.project(ahead - step * gradient)
            outputs_there = features @ there
            objective, move = risk.value(outputs_there), there - ahead
            linear = float(gradient @ move)
            # The last digits are rounding, and shall not shorten the step.
            rounding = 8 * np.finfo(float).eps * (abs(risk_ahead) + abs(linear))
            bound = risk_ahead + linear + float(move @ move) / (2 * step) + rounding
            if objective <= bound or step < 1e-100:
                break
            step /= 2
        best.see(there, objective)
        if float(move @ (there - here)) < 0:
            momentum = 1.0  # it pointed uphill
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        weight = (momentum - 1) / following
        ahead = there + weight * (there - here)
        outputs_ahead = outputs_there + weight * (outputs_there - outputs_here)
        here, outputs_here, momentum = there, outputs_there, following
        yield here
