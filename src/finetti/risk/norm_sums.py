"""min over a region of the mean of ‖r_i + J_i δ‖, with a certificate from below."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.errors import bad_argument
from finetti.risk.lbfgs import minimize_smooth
from finetti.risk.regions import ParameterBall, ParameterBox, Region

STAGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the mean residual: how much each stage smooths


@dataclass(frozen=True, eq=False)
class NormSumMinimum:
    """What was found, and how much better it could be.

    Args:
        value: the mean of norms at ``move``, which is at least the minimum.
        dual: a number that the minimum certainly reaches.
        move: δ.
    """

    value: float
    dual: float
    move: np.ndarray

    @property
    def gap(self) -> float:
        """value − dual ≥ 0."""
        return self.value - self.dual


def minimize_norms(
    residual: np.ndarray,
    apply: Callable[[np.ndarray], np.ndarray],
    pull: Callable[[np.ndarray], np.ndarray],
    region: Region,
    at: np.ndarray,
    *,
    tolerance: float = 1e-4,
) -> NormSumMinimum:
    """min over at + δ ∈ Θ of (1/n)Σ_i ‖r_i + J_iδ‖: a second-order cone problem.

    ‖a‖ = max over ‖u‖ ≤ 1 of ⟨u, a⟩, so every u with ‖u_i‖ ≤ 1 gives a floor:
    (1/n)Σ⟨u_i, r_i⟩ + min_{θ∈Θ} ⟨(1/n)ΣJ_iᵀu_i, θ − at⟩. The norms are smoothed to √(‖·‖² + ε²) and
    ε falls; at the smoothed minimum u_i = (r_i + J_iδ)/√(‖·‖² + ε²) is off by at most ε.

    Args:
        residual: r, (n, d_y).
        apply: δ ↦ Jδ, (n, d_y).
        pull: u ↦ Jᵀu, (p,).
        region: Θ.
        at: θ̂, a member of Θ.
        tolerance: the gap to stop at, as a share of the value.

    One residual and one direction, |1 − 2δ| on [0, 1/4]:

    >>> box = ParameterBox(0.0, 0.25)
    >>> line = np.array([[-2.0]])
    >>> found = minimize_norms(np.ones((1, 1)), lambda d: line * d, lambda u: u[0] @ line, box,
    ...     np.zeros(1))
    >>> round(found.value, 6), round(found.dual, 3)
    (0.5, 0.5)
    """
    count = len(residual)
    scale = float(np.mean(np.linalg.norm(residual, axis=1)))
    move = np.zeros_like(at)
    best, floor = (scale, move), 0.0  # u = 0 is allowed
    if scale == 0:
        return NormSumMinimum(0.0, 0.0, move)

    def look(move: np.ndarray, smooth: float) -> tuple[float, np.ndarray, np.ndarray]:
        """The smoothed mean, its slope, and u."""
        moved = residual + apply(move)
        sizes = np.sqrt(np.sum(moved**2, axis=1, keepdims=True) + smooth**2)
        unit = moved / sizes
        return float(sizes.mean()), pull(unit) / count, unit

    for share in STAGES:
        smooth = share * scale
        move = _smoothed(lambda each, s=smooth: look(each, s)[:2], move, region, at)
        move = region.project(at + move) - at
        value = float(np.mean(np.linalg.norm(residual + apply(move), axis=1)))
        if value < best[0]:
            best = value, move
        _, slope, unit = look(move, smooth)
        dual = float(np.sum(unit * residual)) / count + region.lowest(slope, at)
        # It grows with u, which may grow until one ‖u_i‖ is 1.
        floor = max(floor, dual / float(np.linalg.norm(unit, axis=1).max()))
        if best[0] - floor <= tolerance * best[0]:
            break
    return NormSumMinimum(best[0], min(floor, best[0]), best[1])


def _smoothed(
    function: Callable[[np.ndarray], Any], start: np.ndarray, region: Region, at: np.ndarray
) -> np.ndarray:
    """The smoothed minimum over the region, from a warm start."""
    if isinstance(region, ParameterBox):
        ends = np.broadcast_arrays(region.low - at, region.high - at, at)[:2]
        return minimize_smooth(function, start, np.stack(ends, axis=1).tolist())
    if not isinstance(region, ParameterBall):
        wanted = "a ParameterBox or a ParameterBall"
        raise bad_argument("region", "minimize_norms", wanted, type(region).__name__)
    free = minimize_smooth(function, start)
    if np.linalg.norm(at + free - region.center) <= region.radius:
        return free

    def pulled(weight: float, start: np.ndarray) -> np.ndarray:
        def penalized(move: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = function(move)
            away = at + move - region.center
            return value + weight / 2 * away @ away, slope + weight * away

        return minimize_smooth(penalized, start)

    # The multiplier of the ball: the stronger the pull to the center, the shorter the way.
    low, high, move = -20.0, 20.0, start
    for _ in range(40):
        middle = (low + high) / 2
        move = pulled(np.exp(middle), move)
        if np.linalg.norm(at + move - region.center) > region.radius:
            low = middle
        else:
            high = middle
    return move
