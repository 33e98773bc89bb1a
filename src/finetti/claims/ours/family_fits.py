"""F-family-closed: what each attention fits to its pairs."""

from typing import Any

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim
from finetti.claims.measures import Agreement

STEP, DECAY, RIDGE = 0.7, 0.9, 0.3


def _pairs(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """A query in R³ and 12 pairs."""
    return rng.normal(size=3), rng.normal(size=(12, 3)), rng.normal(size=(12, 2))


def _fits(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Attention, and the fit that it stands for by its steps or by least squares, at the query."""
    state = np.zeros((2, 3))
    for key, value in zip(keys, values, strict=True):
        state = DECAY * state
        state = state - STEP / (key @ key) * np.outer(state @ key - value, key)
    scores = np.exp(-np.sum((keys - query) ** 2, axis=1) / 2)
    roots = np.sqrt(scores / scores.sum())[:, None]
    line = roots * np.hstack([np.ones((12, 1)), keys - query])
    mesa = attention.ConditionalMean(kernels.Linear(), ridge=RIDGE)
    local = attention.LocalLinear(kernels.RBF(), ridge=RIDGE)
    routes = {
        # S = 0 − ∇ Σ ½‖v − Sk‖² at S = 0
        "linear: one gradient step": (attention.LinearAttention(), values.T @ keys @ query),
        "delta rule: online gradient descent": (attention.DeltaRule(STEP, DECAY), state @ query),
        "mesa: ridge regression": (mesa, query @ _least_squares(keys, values, np.eye(3))),
        "smoother: a weighted constant": (
            attention.KernelSmoother(kernels.RBF()),
            _least_squares(roots, roots * values)[0],
        ),
        "local linear: a weighted line": (
            local,
            _least_squares(line, roots * values, np.eye(3, 4, 1))[0],
        ),
    }
    return {name: (module(query, keys, values), fit) for name, (module, fit) in routes.items()}


def _least_squares(rows: np.ndarray, targets: np.ndarray, penalty: Any = None) -> np.ndarray:
    """min Σ‖y − xB‖² + λ‖PB‖², with √λ·P as further rows."""
    if penalty is not None:
        rows = np.vstack([rows, np.sqrt(RIDGE) * penalty])
        targets = np.vstack([targets, np.zeros((len(penalty), targets.shape[1]))])
    return np.linalg.lstsq(rows, targets, rcond=None)[0]


F_FAMILY_CLOSED = Claim(
    id="F-family-closed",
    title="attention fits a function to its pairs",
    statement="Linear attention is one gradient step, the delta rule online gradient descent, mesa "
    "attention a ridge regression, a kernel smoother the best weighted constant and local linear "
    "attention the intercept of the best weighted line through its pairs of keys and values, read "
    "at the query.",
    formula=r"S = Σ_i v_i k_i^⊤,  min_a Σ_i p_i ‖v_i − a‖^2,  min_{a,B} Σ_i p_i ‖v_i − "
    r"a − B(k_i − q)‖^2 + λ‖B‖^2,  p_i = \frac{K(q,k_i)}{Σ_j K(q,k_j)}",
    label="the family",
    measure=Agreement(
        _fits,
        draw=_pairs,
        tolerance=1e-9,
        sides="each attention and the fit that it stands for, made by least squares or by its "
        "steps, with 12 pairs in three dimensions",
        trials=(10, 200),
    ),
)
