"""CME attention is kernel ridge regression over the context."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, at_least, close


def objective(gram: np.ndarray, values: np.ndarray, ridge: float, alpha: np.ndarray) -> float:
    """Σ‖v − f(k)‖² + λ‖f‖² of the function f = Σ α_ℓ K(k_ℓ, ·)."""
    residual = values - gram @ alpha
    return float(np.sum(residual**2) + ridge * np.sum(alpha * (gram @ alpha)))


def run(context: Context) -> Evidence:
    """Stationarity and minimality of the regularized least squares that attention solves."""
    gradient = 0.0
    least_rise = np.inf
    for trial in range(context.pick(quick=10, paper=100)):
        rng = context.generator(CLAIM.id, trial)
        keys, values, ridge = rng.normal(size=(20, 3)), rng.normal(size=(20, 2)), 0.2
        module = attention.ConditionalMean(kernels.RBF(), ridge=ridge)
        gram = np.exp(-np.sum((keys[:, None] - keys[None]) ** 2, axis=-1) / 2)
        # At the keys attention is Kα; the coefficients follow from the residual, α = (V − Kα)/λ.
        fitted = np.asarray(module(keys, keys, values))
        alpha = (values - fitted) / ridge
        best = objective(gram, values, ridge, alpha)
        gradient = max(gradient, np.abs(gram @ alpha - fitted).max())
        for size in (1e-3, 1e-1, 1.0):
            moved = alpha + size * rng.normal(size=alpha.shape)
            least_rise = min(least_rise, objective(gram, values, ridge, moved) - best)
    return Evidence(
        (
            close("attention − the function with coefficients (V − fit)/λ", gradient, 1e-10),
            at_least("smallest rise of the objective under perturbation", least_rise, 0.0),
        )
    )


CLAIM = Claim(
    id="E-eq-4.5",
    title="CME attention is kernel ridge regression",
    statement="attn_CME(·, K, V) is the function f that minimizes Σ‖v − f(k)‖² + λ‖f‖² over the "
    "kernel's space.",
    paper="E",
    label="(4.5)",
    run=run,
)
