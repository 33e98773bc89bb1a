"""CME attention is a Gaussian-process posterior, mean and variance."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, close


def members() -> dict[str, tuple]:
    """Every kernel with a plain NumPy formula beside it."""

    def squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.sum((x[:, None] - y[None]) ** 2, axis=-1)

    root3 = np.sqrt(3.0)
    return {
        "RBF": (kernels.RBF(0.8), lambda x, y: np.exp(-squared(x, y) / (2 * 0.8**2))),
        "Exponential": (kernels.Exponential(), lambda x, y: np.exp(x @ y.T)),
        "Linear": (kernels.Linear(), lambda x, y: x @ y.T),
        "Polynomial": (kernels.Polynomial(3), lambda x, y: (x @ y.T + 1) ** 3),
        "Matérn 3/2": (
            kernels.Matern(1.5),
            lambda x, y: (
                (1 + root3 * np.sqrt(squared(x, y))) * np.exp(-root3 * squared(x, y) ** 0.5)
            ),
        ),
    }


def run(context: Context) -> Evidence:
    """Mean and variance of each kernel against conditioning the joint Gaussian of values and f."""
    measurements = []
    for name, (kernel, formula) in members().items():
        mean_error = variance_error = 0.0
        for trial in range(context.pick(quick=5, paper=50)):
            rng = context.generator(CLAIM.id, name, trial)
            keys, query = rng.normal(size=(24, 3)), rng.normal(size=(6, 3))
            values, ridge = rng.normal(size=(24, 2)), 10.0 ** rng.uniform(-1, 1)
            module = attention.ConditionalMean(kernel, ridge=ridge)
            mean, variance = module.posterior(query, keys, values)
            gain = np.linalg.solve(formula(keys, keys) + ridge * np.eye(24), formula(keys, query))
            exact_mean = gain.T @ values
            exact_variance = np.diag(formula(query, query) - formula(query, keys) @ gain)
            prior = np.diag(formula(query, query))
            scale = np.abs(exact_mean).max()
            mean_error = max(mean_error, np.abs(mean - exact_mean).max() / scale)
            variance_error = max(variance_error, (np.abs(variance - exact_variance) / prior).max())
        measurements.append(close(f"{name}: mean (relative)", mean_error, 1e-10))
        measurements.append(close(f"{name}: variance (in prior variances)", variance_error, 1e-10))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="E-app-B.1",
    title="CME attention is a Gaussian-process posterior",
    statement="If values are r = f(c) + noise with f ∼ GP(0, K) and noise variance λ, then "
    "attn_CME is the posterior mean of f at the query, for every kernel; its posterior variance is "
    "K(q,q) − K(q,K)(K + λI)⁻¹K(K,q).",
    paper="E",
    label="Appendix B.1, (4.5)",
    run=run,
)
