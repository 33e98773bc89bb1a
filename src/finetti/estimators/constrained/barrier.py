"""Newton's method within limits of norms, for fits on which gradients alone crawl.

With lengths t_m that bound the blocks, the limits are smooth inside and infinite at their edge:

    B(V, t) = −Σ_m log(t_m² − ‖v_m‖²) − log(a − Σ_m t_m) − log(b² − ‖V‖²)

The minimum of P/μ + B tends to that of P within the limits as μ falls, with a gap of about
μ·(2M + 2), however badly the features are scaled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from finetti.estimators.constrained.constrained_risk import Best, ConstrainedRisk
from finetti.estimators.ridge_system import Floats

FALL = 20.0  # of μ, from one center to the next
LEAST = 1e-20  # of it, in units of the first: below, rounding leaves nothing to gain
STEPS_TO_CENTER = 200
EXTRAS = 0.0, 1e-14, 1e-12, 1e-10, 1e-8
DECREMENT = 1e-2  # squared length of a Newton step at which a center is reached

_square: Any = scipy.linalg.get_blas_funcs("syrk", dtype="d")


@dataclass(frozen=True)
class _Point:
    """V and t strictly within the limits."""

    risk: ConstrainedRisk
    values: Floats
    lengths: Floats

    @cached_property
    def outputs(self) -> Floats:
        return self.risk.features @ self.values

    @cached_property
    def objective(self) -> float:
        return self.risk.value(self.outputs)

    @cached_property
    def norms(self) -> Floats:
        return np.linalg.norm(self.risk.blocks(self.values), axis=1)

    @cached_property
    def slack(self) -> Floats:
        """t² − ‖v‖² of every block."""
        return (self.lengths - self.norms) * (self.lengths + self.norms)

    @cached_property
    def sum_slack(self) -> float:
        return self.risk.limits.norm_sum - float(self.lengths.sum())

    @cached_property
    def square_slack(self) -> float:
        return self.risk.limits.root_square_sum**2 - float(self.values @ self.values)

    def height(self, share: float) -> float:
        """P/μ + B; ∞ beyond the limits."""
        slacks = np.append(self.slack, [self.sum_slack, self.square_slack])
        if not (slacks > 0).all() or not (self.lengths > 0).all():
            return np.inf
        return self.objective / share - float(np.log(slacks).sum())

    def moved(self, step: Floats) -> "_Point":
        of_values, of_lengths = np.split(step, [self.values.size])
        return _Point(self.risk, self.values + of_values, self.lengths + of_lengths)

    def newton_step(self, share: float, gradient: Floats) -> tuple[Floats, float]:
        """Of values and lengths, and its squared length in its own metric."""
        values, slack, n_values = self.values, self.slack, self.values.size
        blocks = self.risk.blocks(values)
        width = blocks.shape[1]
        downhill = -np.concatenate(
            [
                gradient / share
                + 2 * values * (1 / np.repeat(slack, width) + 1 / self.square_slack),
                1 / self.sum_slack - 2 * self.lengths / slack,
            ]
        )
        hessian = np.zeros((len(downhill), len(downhill)), order="F")  # the upper triangle
        hessian[:n_values, :n_values] = self._curvature(share)
        hessian[:n_values, :n_values] += 4 / self.square_slack**2 * np.outer(values, values)
        hessian[n_values:, n_values:] = 1 / self.sum_slack**2
        for m, block in enumerate(blocks):
            place = slice(m * width, (m + 1) * width)
            hessian[place, place] += 4 / slack[m] ** 2 * np.outer(block, block)
            hessian[place, n_values + m] = -4 * self.lengths[m] / slack[m] ** 2 * block
        hessian[np.diag_indices_from(hessian)] += np.concatenate(
            [
                np.repeat(2 / slack, width) + 2 / self.square_slack,
                2 * (self.lengths**2 + self.norms**2) / slack**2,
            ]
        )
        step = _solve(hessian, downhill)
        return step, float(downhill @ step)

    def _curvature(self, share: float) -> Floats:
        """∇²P/μ, of which BLAS fills the upper triangle."""
        risk = self.risk
        curvatures = risk.shares * risk.loss.curvatures(self.outputs, risk.targets)
        curved = curvatures > 0
        rows = np.sqrt(curvatures[curved] / share)[:, None] * risk.features[curved]
        return _square(1.0, rows.T) if len(rows) else np.zeros(1)


def _solve(hessian: Floats, right: Floats) -> Floats:
    """H⁻¹ of the right side; where rounding has made H indefinite, of H with a little more."""
    scale = np.sqrt(np.diag(hessian))
    scaled = hessian / scale / scale[:, None]
    for extra in EXTRAS:
        scaled[np.diag_indices_from(scaled)] = 1 + extra
        try:
            factor = scipy.linalg.cho_factor(scaled, check_finite=False)
        except scipy.linalg.LinAlgError:
            continue
        return scipy.linalg.cho_solve(factor, right / scale, check_finite=False) / scale
    raise scipy.linalg.LinAlgError


def newton_steps(best: Best) -> Iterator[Floats]:
    """V after every step; ends where rounding leaves nothing to gain."""
    risk = best.risk
    # From the middle: where gradients have led lies at the edge, and is a bad start here.
    lengths = np.full(risk.n_blocks, risk.limits.norm_sum / (2 * risk.n_blocks))
    point = _Point(risk, np.zeros_like(best.values), lengths)
    first = share = (point.objective - best.lower) / (2 * risk.n_blocks + 2)
    while share > LEAST * first:
        for _ in range(STEPS_TO_CENTER):
            gradient = best.gradient(point.outputs)
            try:
                step, decrement = point.newton_step(share, gradient)
            except scipy.linalg.LinAlgError:
                return
            following = _downhill(point, step, decrement, share)
            if following is None:
                break
            point = following
            best.see(point.values, point.objective)
            yield point.values
            if decrement <= DECREMENT:
                break
        share /= FALL


def _downhill(point: _Point, step: Floats, decrement: float, share: float) -> _Point | None:
    """Where the step, or a part of it, falls as it should; None where rounding decides."""
    height, length = point.height(share), 1.0
    while length > 1e-9:
        there = point.moved(length * step)
        if there.height(share) <= height - 0.1 * length * decrement:
            return there
        length /= 2
    return None
