"""Assumption 5.4: how near a function of the latent is to those that attention's values span."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.core.arrays import check_finite
from finetti.core.errors import InputError, bad_argument
from finetti.display.card import Card
from finetti.display.displayable import Displayable
from finetti.risk.theorems.minimax_fit import uniform_fit

SPAN_TOL = 1e-9  # of the largest entry: what counts as inside the span


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


@dataclass(frozen=True, eq=False)
class LatentToValue:
    """H_LTV: the space of functions wᵀψ(z) with K_LTV(z, z') = ψ(z)ᵀψ(z')   (5.10), zhang2022

    Args:
        features: ψ(z) = E[v^msk | msk, z], one row per atom, (atoms, d).

    >>> space = LatentToValue([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0]])
    >>> values, weights = space.element([1.0, 0.0, 1.0])
    >>> round(space.norm(values) ** 2, 9), round(float(weights @ weights), 9)   # ‖g_a‖² = ‖w_a‖²
    (8.0, 8.0)
    """

    features: Any

    def __post_init__(self) -> None:
        features = np.asarray(self.features, np.float64)
        if features.ndim != 2 or not features.size:
            got = f"shape {features.shape}"
            raise bad_argument("features", "LatentToValue", "of shape (atoms, d)", got)
        check_finite(features, "features", "LatentToValue")
        object.__setattr__(self, "features", features)

    @property
    def kernel(self) -> np.ndarray:
        """K_LTV, (atoms, atoms)."""
        return self.features @ self.features.T

    def element(self, coefficients: Any) -> tuple[np.ndarray, np.ndarray]:
        """g_a(z) = Σ a(z')K_LTV(z', z) and w_a = Σ a(z')ψ(z')              E.1–E.3, zhang2022"""
        weights = np.asarray(coefficients, np.float64) @ self.features
        return self.features @ weights, weights

    def norm(self, values: Any) -> float:
        """‖g‖: the smallest ‖w‖ with wᵀψ = g at all atoms; refused outside of the space."""
        values = np.asarray(values, np.float64)
        weights = np.linalg.lstsq(self.features, values)[0]
        miss = np.abs(self.features @ weights - values).max()
        if miss > SPAN_TOL * max(1.0, np.abs(values).max()):
            raise InputError(
                f"The function is not wᵀψ(z) for any w: the nearest one misses it by {miss:.3g}. "
                "`recovery_gap` finds the nearest in the sup-norm."
            )
        return float(np.linalg.norm(weights))
