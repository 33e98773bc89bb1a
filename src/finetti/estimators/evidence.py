"""The ridge of the largest marginal likelihood, for a whole grid from one decomposition."""

import numpy as np

from finetti.estimators.ridge_system import Floats, RidgePath, RidgeSystem


def by_likelihood(system: RidgeSystem, ridges: Floats) -> RidgePath:
    """−log p(y | λ) of every ridge, up to a constant, the targets together.

    Noise of variance σ² and coefficients of variance σ²/λ; σ² is at its best, which leaves, with
    m rows beside the intercept,

        ½ m log Σ_k λ/(S_k² + λ) (u_kᵀb)² + ½ Σ_k log(1 + S_k²/λ)

    Unlike leave-one-out it also sees how unlikely wild coefficients are that the rows do not show.
    """
    ridges = np.asarray(ridges, np.float64)
    shrink = ridges / (system.eigenvalues[:, None] + ridges)  # (r, ridges)
    squares = system.scores.T**2 @ shrink + system.rest[:, None]  # (t, ridges)
    freedom = max(system.means.n_rows - system.means.has_intercept, 1)
    with np.errstate(divide="ignore"):
        fit = 0.5 * freedom * np.log(squares).sum(axis=0)
    criterion = fit - 0.5 * len(squares) * np.log(shrink).sum(axis=0)
    return RidgePath("marginal_likelihood", ridges, criterion)
