"""min over a box of the mean of ‖r_i + J_i δ‖, with a certificate from below."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.risk.solvers import minimize_smooth, solve_linear_program
from finetti.risk.theorems.parameter_box import ParameterBox

STAGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the mean residual: how much each stage smooths
MAX_LINEAR_ENTRIES = 100_000  # of the Jacobian of a linear program


@dataclass(frozen=True, eq=False)
class NormSumMinimum:
    """The minimum that was found, with a certificate from below.

    Args:
        value: the mean of norms at ``move``, which is at least the minimum.
        dual: a number that the minimum certainly reaches.
        move: δ.
    """

    value: float
    dual: float
    move: np.ndarray


def minimize_norms(
    residual: np.ndarray,
    matrix: np.ndarray,
    box: ParameterBox,
    at: np.ndarray,
    *,
    tolerance: float = 1e-4,
) -> NormSumMinimum:
    """min over at + δ ∈ Θ of (1/n)Σ_i ‖r_i + J_iδ‖: a second-order cone problem.

    ‖a‖ = max over ‖u‖ ≤ 1 of ⟨u, a⟩, so every u with ‖u_i‖ ≤ 1 gives a floor:
    (1/n)Σ⟨u_i, r_i⟩ + min_{θ∈Θ} ⟨(1/n)ΣJ_iᵀu_i, θ − at⟩. The norms are smoothed to √(‖·‖² + ε²) and
    ε falls; at the smoothed minimum u_i = (r_i + J_iδ)/√(‖·‖² + ε²) is off by at most ε. Where J is
    so ill-conditioned that this minimum is not met, numbers (d_y = 1) are left to a linear
    program: its multipliers are another u, judged in the same way.

    Args:
        residual: r, (n, d_y).
        matrix: J, (n, d_y, p).
        box: Θ.
        at: θ̂, a member of Θ.
        tolerance: the gap to stop at, as a share of the value.

    One residual and one direction, |1 − 2δ| on [0, 1/4]:

    >>> box = ParameterBox(0.0, 0.25)
    >>> found = minimize_norms(np.ones((1, 1)), np.array([[[-2.0]]]), box, np.zeros(1))
    >>> round(found.value, 6), round(found.dual, 3)
    (0.5, 0.5)
    """
    count, flat = len(residual), matrix.reshape(residual.size, at.size)
    scale = float(np.mean(np.linalg.norm(residual, axis=1)))
    move = np.zeros_like(at)
    best, floor = (scale, move), 0.0  # u = 0 is allowed
    if scale == 0:
        return NormSumMinimum(0.0, 0.0, move)

    def look(move: np.ndarray, smooth: float) -> tuple[float, np.ndarray, np.ndarray]:
        """The smoothed mean, its slope, and u."""
        moved = residual + matrix @ move
        sizes = np.sqrt(np.sum(moved**2, axis=1, keepdims=True) + smooth**2)
        unit = moved / sizes
        return float(sizes.mean()), unit.ravel() @ flat / count, unit

    def judge(move: np.ndarray, unit: np.ndarray) -> bool:
        """Whether the gap is small enough, now that this move and this u are known."""
        nonlocal best, floor
        value = float(np.mean(np.linalg.norm(residual + matrix @ move, axis=1)))
        if value < best[0]:
            best = value, move
        slope = unit.ravel() @ flat / count
        dual = float(np.sum(unit * residual)) / count + box.minimize_linear(slope, at)
        # It grows with u, which may grow until one ‖u_i‖ is 1.
        floor = largest_of(floor, dual / max(float(np.linalg.norm(unit, axis=1).max()), 1e-300))
        return best[0] - floor <= tolerance * best[0]

    low, high, _ = np.broadcast_arrays(box.low - at, box.high - at, at)
    ends = np.stack([low, high], axis=1)
    for share in STAGES:
        smooth = share * scale
        move = minimize_smooth(lambda each, s=smooth: look(each, s)[:2], move, ends)
        move = box.project(at + move) - at
        if judge(move, look(move, smooth)[2]):
            break
    else:
        small = residual.size * at.size <= MAX_LINEAR_ENTRIES
        if residual.shape[1] == 1 and small:
            move, unit = _by_linear_program(residual[:, 0], flat, ends)
            judge(box.project(at + move) - at, unit)
    return NormSumMinimum(best[0], smallest_of(floor, best[0]), best[1])


def _by_linear_program(
    residual: np.ndarray, matrix: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """δ and u of min Σ_i t_i/n over the ``ends`` of δ with −t_i ≤ r_i + J_iδ ≤ t_i."""
    count, size = matrix.shape
    sizes = -sparse.eye_array(count)  # n×n: dense, it would be all of the memory for many samples
    found = solve_linear_program(
        np.concatenate([np.zeros(size), np.full(count, 1 / count)]),
        sparse.block_array([[matrix, sizes], [-matrix, sizes]]),
        np.concatenate([-residual, residual]),
        [*map(tuple, ends), *[(0, None)] * count],
    )
    if found.x is None:  # the box holds `at`, so there is one; nothing is gained if it is not found
        return np.zeros(size), np.zeros((count, 1))
    above, below = np.split(found.ineqlin.marginals, 2)
    return found.x[:size], count * (below - above)[:, None]
