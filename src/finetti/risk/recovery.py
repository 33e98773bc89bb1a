"""Assumption 5.4: how near a function of the latent is to those that attention's values span."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from finetti.core.arrays import check_finite
from finetti.core.errors import FinettiError, InputError, bad_argument
from finetti.show.card import Card
from finetti.show.shown import Shown

SPAN_TOL = 1e-9  # of the largest entry: what counts as inside the span


@dataclass(frozen=True, eq=False)
class RecoveryGap(Shown):
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
    >>> float(gap.errors[0]), float(gap.weights[0, 0])
    (1.5, 1.5)

    Reference: Assumption 5.4 and (5.10), zhang2022.
    """
    target, features = _pair(target, features, "recovery_gap")
    atoms, width = features.shape
    errors, lower, weights = [], [], []
    # Variables (w, t): minimize t with ψw − t ≤ g and −ψw − t ≤ −g.
    above = np.hstack([np.vstack([features, -features]), -np.ones((2 * atoms, 1))])
    cost = np.append(np.zeros(width), 1.0)
    bounds = [(None, None)] * width + [(0, None)]
    for column in target.T:
        limit = np.concatenate([column, -column])
        found = optimize.linprog(cost, above, limit, bounds=bounds, method="highs")
        if found.status != 0:
            raise FinettiError(
                f"The sup-norm projection did not end: {found.message} Scale the features so that "
                "their largest entry is about 1."
            )
        weight = found.x[:width]
        weights.append(weight)
        errors.append(np.abs(column - features @ weight).max())
        lower.append(_dual_value(found.ineqlin.marginals, features, column))
    weights = np.stack(weights, axis=1)
    residual = target - features @ weights
    return RecoveryGap(np.array(errors), np.array(lower), weights, residual)


def _dual_value(marginals: np.ndarray, features: np.ndarray, column: np.ndarray) -> float:
    """max uᵀg over ‖u‖₁ ≤ 1 and ψᵀu = 0, at the solver's u made feasible: a floor, whatever u."""
    atoms = len(column)
    dual = marginals[:atoms] - marginals[atoms:]
    dual = dual - features @ np.linalg.lstsq(features, dual)[0]
    size = np.abs(dual).sum()
    return float(max(0.0, np.abs(dual @ column) / size)) if size > 0 else 0.0


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


def _pair(target: Any, features: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    target, features = np.asarray(target, np.float64), np.asarray(features, np.float64)
    for name, array in (("target", target), ("features", features)):
        if array.ndim != 2 or not array.size:
            got = f"shape {array.shape}"
            raise bad_argument(name, owner, "of shape (atoms, columns)", got)
        check_finite(array, name, owner)
    if len(target) != len(features):
        got = f"{len(target)} and {len(features)} rows"
        raise bad_argument("features", owner, "one row for each row of target", got)
    return target, features
