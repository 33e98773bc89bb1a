"""F-family-closed: what each attention fits to its pairs."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, close
from finetti.core.numbers import largest_of

STEP, DECAY, RIDGE = 0.7, 0.9, 0.3
Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of a query to keys and values


def _gradient_step(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """S = 0 − ∇ Σ ½‖v − Sk‖² at S = 0."""
    return values.T @ keys @ query


def online(step: float, decay: float, keys: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """S after each pair: S ← αS, then a step of gradient descent on ½‖v − Sk‖²."""
    state, states = np.zeros((values.shape[1], keys.shape[1])), []
    for key, value in zip(keys, values, strict=True):
        state = decay * state
        state = state - step / (key @ key) * np.outer(state @ key - value, key)
        states.append(state)
    return states


def _ridge_regression(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """min Σ‖v − Sk‖² + λ‖S‖², as least squares with √λ·I as further keys."""
    rows = np.vstack([keys, np.sqrt(RIDGE) * np.eye(keys.shape[1])])
    targets = np.vstack([values, np.zeros((keys.shape[1], values.shape[1]))])
    return np.linalg.lstsq(rows, targets, rcond=None)[0].T @ query


def _weighted(query: np.ndarray, keys: np.ndarray, values: np.ndarray, line: bool) -> np.ndarray:
    """min Σ p‖v − a − B(k − q)‖² + λ‖B‖², p = K(q, k)/ΣK, as least squares; no ``line``: B = 0."""
    scores = np.exp(-np.sum((keys - query) ** 2, axis=1) / 2)
    roots = np.sqrt(scores / scores.sum())[:, None]
    ones = np.ones((len(keys), 1))
    if not line:
        return np.linalg.lstsq(roots * ones, roots * values, rcond=None)[0][0]
    d = keys.shape[1]
    rows = np.vstack(
        [roots * np.hstack([ones, keys - query]), np.sqrt(RIDGE) * np.eye(d, d + 1, 1)]
    )
    targets = np.vstack([roots * values, np.zeros((d, values.shape[1]))])
    return np.linalg.lstsq(rows, targets, rcond=None)[0][0]


def _members(step: float, ridge: float) -> Mapping[str, tuple[Any, Fit]]:
    rbf = kernels.RBF()
    return {
        "linear: one gradient step": (attention.LinearAttention(), _gradient_step),
        "delta rule: online gradient descent": (
            attention.DeltaRule(step, DECAY),
            lambda query, keys, values: online(STEP, DECAY, keys, values)[-1] @ query,
        ),
        "mesa: ridge regression": (
            attention.ConditionalMean(kernels.Linear(), ridge=ridge),
            _ridge_regression,
        ),
        "smoother: a weighted constant": (
            attention.KernelSmoother(rbf),
            lambda *pairs: _weighted(*pairs, line=False),
        ),
        "local linear: a weighted line": (
            attention.LocalLinear(rbf, ridge=ridge),
            lambda *pairs: _weighted(*pairs, line=True),
        ),
    }


@claim(
    id="F-family-closed",
    title="attention fits a function to its pairs",
    statement="Linear attention is one gradient step, the delta rule online gradient descent, mesa "
    "attention a ridge regression, a kernel smoother the best weighted constant and local linear "
    "attention the intercept of the best weighted line through the pairs (k_i, v_i), read at q.",
    formula=r"S = Σ_i v_i k_i^⊤,  min_a Σ_i p_i ‖v_i − a‖^2,  min_{a,B} Σ_i p_i ‖v_i − "
    r"a − B(k_i − q)‖^2 + λ‖B‖^2,  p_i = \frac{K(q,k_i)}{Σ_j K(q,k_j)}",
    label="the family",
    controls=(
        Control("a step 1 % too long", changes={"step": 1.01 * STEP}),
        Control("a ridge 20 % too large", changes={"ridge": 1.2 * RIDGE}),
    ),
)
def f_family_closed(context: Context, step: float = STEP, ridge: float = RIDGE) -> Evidence:
    """Each attention against the fit that it stands for, made by least squares or by its steps."""
    measurements = []
    for name, (module, fit) in _members(step, ridge).items():
        worst = 0.0
        for trial in range(context.pick(quick=10, paper=200)):
            rng = context.generator(f_family_closed.id, name, trial)
            query, keys = rng.normal(size=3), rng.normal(size=(12, 3))
            values = rng.normal(size=(12, 2))
            exact = fit(query, keys, values)
            error = np.abs(np.asarray(module(query, keys, values)) - exact).max()
            worst = largest_of(worst, error / np.abs(exact).max())
        measurements.append(close(f"{name} (relative)", worst, 1e-9))
    return Evidence(*measurements, note="12 pairs, three dimensions.")
