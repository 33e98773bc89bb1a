"""Constrained empirical risk minimization with a certificate.

Minimize P(V) = Σ_j p_j l(⟨φ_j, V⟩, y_j) over V with limited norms, p_j the shares of the rows. For
any slopes α_j = ∂l(f_j, y_j)/∂f, wherever the f_j come from, Fenchel's duality gives

    P(V) ≥ Σ_j p_j (l(f_j, y_j) − α_j f_j) − h(−Σ_j p_j α_j φ_j)

(the bracket is −l*(α_j)) with h the support function of the limits. The best such bound so far is
below the minimum, and what P(V) lies above it is the duality gap: how far from optimal V is at
most.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from finetti.estimators.losses import Loss
from finetti.estimators.norm_limits import NormLimits
from finetti.estimators.ridge import Floats
from finetti.show.progress import Progress, progress_bar

SILENT_SECONDS = 5.0
GROWTH = 1.1  # of the step, tried at every iteration; halved where it is too long


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
    features: Floats,
    targets: Floats,
    shares: Floats,
    loss: Loss,
    limits: NormLimits,
    shape: tuple[int, int],
    *,
    tol: float,
    max_iter: int,
    name: str,
) -> Minimum:
    """V by accelerated projected gradients, until the gap is at most ``tol``.

    Args:
        features: φ_j, (n, M·k), block after block.
        targets: y_j, (n,).
        shares: p_j, (n,), of sum 1.
        loss: l.
        limits: of the norms.
        shape: (M, k).
        tol: of the gap.
        max_iter: iterations at most; the gap says what was reached.
        name: of the fit, on the progress line.

    Reference: Beck and Teboulle (2009), restarted as in O'Donoghue and Candès (2015).
    """

    def risk(outputs: Floats) -> float:
        return float(shares @ loss.values(outputs, targets))

    def is_short_enough(step: float, move: Floats, risk_there: float, linear: float) -> bool:
        # The last digits of risks are rounding, and shall not shorten the step.
        bound = linear + float(move @ move) / (2 * step)
        return risk_there <= bound + 4 * np.finfo(float).eps * max(abs(linear), 1e-300)

    here = ahead = np.zeros(features.shape[1])
    outputs_here = outputs_ahead = np.zeros(len(features))
    best, objective = here, risk(outputs_here)
    lower, momentum, step, iteration = -np.inf, 1.0, 1.0, 0
    with _late_progress(name, max_iter) as report:
        while True:
            slopes = shares * loss.slopes(outputs_ahead, targets)
            gradient = slopes @ features
            risk_ahead = risk(outputs_ahead)
            bound = risk_ahead - float(slopes @ outputs_ahead)
            lower = max(lower, bound - limits.support(gradient.reshape(shape)))
            gap = max(objective - lower, 0.0)
            if gap <= tol or iteration == max_iter:
                break
            iteration += 1
            report(Progress(iteration, 0, f"gap {gap:.1e}, goal {tol:.0e}"))
            step *= GROWTH
            while True:
                there = limits.project((ahead - step * gradient).reshape(shape)).ravel()
                outputs_there = features @ there
                risk_there, move = risk(outputs_there), there - ahead
                if is_short_enough(step, move, risk_there, risk_ahead + float(gradient @ move)):
                    break
                step /= 2
            if risk_there < objective:
                best, objective = there, risk_there
            if float(move @ (there - here)) < 0:
                momentum = 1.0  # it pointed uphill
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            weight = (momentum - 1) / following
            ahead = there + weight * (there - here)
            outputs_ahead = outputs_there + weight * (outputs_there - outputs_here)
            here, outputs_here, momentum = there, outputs_there, following
    return Minimum(best.reshape(shape), objective, gap, iteration)


@contextmanager
def _late_progress(name: str, total: int) -> Iterator[Callable[[Progress], None]]:
    """A progress bar for a fit that turns out to be long."""
    start, bars = time.monotonic(), ExitStack()
    shown: list[Callable[[Progress], None]] = []

    def report(progress: Progress) -> None:
        if not shown and time.monotonic() - start > SILENT_SECONDS:
            shown.append(bars.enter_context(progress_bar(name, total, True, unit="iterations")))
        for bar in shown:
            bar(progress)

    with bars:
        yield report
