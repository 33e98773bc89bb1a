"""The nearest function of a linear class, where the largest error counts."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.arguments import check_finite
from finetti.core.errors import FinettiError, bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.risk.solvers import solve_linear_program

ROUNDS = 200
_TOLERANCE = 1e-7  # of the largest error, relative to the targets
_FORGOTTEN = 0.3


@dataclass(frozen=True, eq=False)
class UniformFit:
    """W with the least sup_x ‖Wᵀh(x) − t(x)‖.

    Args:
        weights: W, (p, d), of least norm where several are equally good.
        error: the largest error of W.
        floor: what no W can go below, by the dual of the last linear program.
    """

    weights: np.ndarray
    error: float
    floor: float


def uniform_fit(features: Any, targets: Any) -> UniformFit:
    """min_W sup_x ‖Wᵀh(x) − t(x)‖₂ over finitely many x.

    A linear program if the targets are numbers. The ball of vectors is cut out by half spaces: each
    round adds, where the error is too long, the one that it points to.

    Args:
        features: h, one row per x, (n, p).
        targets: t, one row per x, (n, d).

    >>> fit = uniform_fit(features=[[1.0], [1.0]], targets=[[0.0], [3.0]])
    >>> fit.weights.round(9).tolist(), round(fit.error, 9)
    ([[1.5]], 1.5)
    """
    owner = "uniform_fit"
    h, t = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    if h.ndim != 2 or t.ndim != 2 or len(h) != len(t) or not h.size or not t.size:
        got = f"shapes {h.shape} and {t.shape}"
        raise bad_argument("targets", owner, "rows (n, d) for features (n, p)", got)
    check_finite(h, "features", owner)
    check_finite(t, "targets", owner)
    # In an orthonormal basis of what the features span, W has its least norm.
    left, singular, right = np.linalg.svd(h, full_matrices=False)
    kept = singular > max(h.shape) * np.finfo(np.float64).eps * singular[0]
    basis, back = left[:, kept], right[kept].T / singular[kept]
    scale = float(np.abs(t).max()) or 1.0
    weights, floor = _cut(basis, t / scale)
    weights = back @ weights
    error = float(np.linalg.norm(h @ (scale * weights) - t, axis=1).max())
    # Rounding may put the optimum of the program above the error of its own answer.
    return UniformFit(scale * weights, error, smallest_of(scale * floor, error))


def _cut(basis: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, float]:
    """The weights in ``basis`` and a lower bound of the error, for targets of size 1."""
    (n, rank), d = basis.shape, t.shape[1]
    if not rank:
        return np.zeros((0, d)), float(np.linalg.norm(t, axis=1).max())
    where: np.ndarray = np.repeat(np.arange(n), 2 * d)
    directions: np.ndarray = np.tile(np.concatenate([np.eye(d), -np.eye(d)]), (n, 1))
    objective = np.append(np.zeros(rank * d), 1.0)
    weights, floor = np.zeros((rank, d)), 0.0
    for _ in range(ROUNDS):
        # uᵀ(Wᵀh − t) ≤ error, for every x and the directions u that are known there
        rows = np.einsum("mr,md->mrd", basis[where], directions).reshape(len(where), -1)
        rows = np.hstack([rows, -np.ones((len(rows), 1))])
        limits = np.sum(t[where] * directions, axis=1)
        found = solve_linear_program(objective, rows, limits, (None, None))
        if found.status != 0:
            raise FinettiError(f"The linear program of uniform_fit has no answer: {found.message}")
        weights, floor = found.x[:-1].reshape(rank, d), float(found.x[-1])
        errors = basis @ weights - t
        sizes = np.linalg.norm(errors, axis=1)
        far = np.flatnonzero(sizes > largest_of(floor, 0.0) + _TOLERANCE)
        if not far.size or d == 1:
            return weights, largest_of(floor, 0.0)
        # Half spaces far from the answer are forgotten, and come back when they are needed.
        near = found.slack < _FORGOTTEN * sizes.max()
        near[: 2 * d * n] = True  # without the axes there may be no answer
        where = np.append(where[near], far)
        directions = np.vstack([directions[near], errors[far] / sizes[far, None]])
    return weights, largest_of(floor, 0.0)
