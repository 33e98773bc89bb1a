"""Assumption 5.4: how near a function of the latent is to those that attention's values span."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.errors import bad_argument
from finetti.display import Card, Displayable
from finetti.risk.theorems.minimax_fit import uniform_fit


@dataclass(frozen=True, eq=False)
class RecoveryGap(Displayable):
    """ε_g, and the weights that attain it                              Assumption 5.4, zhang2022

    Args:
        errors: sup_z |g*_i(z) − w_iᵀψ(z)| of every coordinate i, (d_y,).
        lower: the same, certified from below by the dual program, (d_y,).
        weights: W = (w_1, …), (d, d_y).
        residual: g* − ψW, (atoms, d_y).
    """

    errors: np.ndarray
    lower: np.ndarray
    weights: np.ndarray
    residual: np.ndarray

    @property
    def total(self) -> float:
        """ε_g = √(Σ_i ε_i²)."""
        return float(np.linalg.norm(self.errors))

    def __card__(self) -> Card:
        fields = (
            ("recovery gap ε_g", self.total),
            ("largest coordinate", float(self.errors.max())),
            ("atoms", len(self.residual)),
            ("features", len(self.weights)),
        )
        return Card("Recovery gap", fields)


def recovery_gap(target: Any, features: Any) -> RecoveryGap:
    """min_W Σ_i sup_z |g*_i(z) − w_iᵀψ(z)|²: a projection in the sup-norm, by linear programs.

    Args:
        target: g*, one row per atom of z, (atoms, d_y).
        features: ψ, (atoms, d).

    The projection onto the constants is the middle of the range:

    >>> gap = recovery_gap(target=[[0.0], [1.0], [3.0]], features=[[1.0], [1.0], [1.0]])
    >>> gap.errors.round(9), gap.weights.round(9)
    (array([1.5]), array([[1.5]]))

    Reference: Assumption 5.4 and (5.10), zhang2022.
    """
    target, features = np.asarray(target, np.float64), np.asarray(features, np.float64)
    if target.ndim != 2 or features.ndim != 2 or len(target) != len(features):
        wanted = "(atoms, d), one row for each row of target (atoms, d_y)"
        got = f"shapes {features.shape} and {target.shape}"
        raise bad_argument("features", "recovery_gap", wanted, got)
    fits = [uniform_fit(features, column[:, None]) for column in target.T]
    weights = np.hstack([fit.weights for fit in fits])
    return RecoveryGap(
        np.array([fit.error for fit in fits]),
        np.array([fit.floor for fit in fits]),
        weights,
        target - features @ weights,
    )
