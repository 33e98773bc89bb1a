"""Appendix B.1: CME attention is a Gaussian process, and its error bars are calibrated."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_most, close
from finetti.claims.exchangeability.instances import rbf, squared


def _members() -> dict[str, tuple]:
    """Every kernel with a plain NumPy formula beside it."""

    def matern(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        distance = np.sqrt(3.0) * np.sqrt(squared(x, y))
        return (1 + distance) * np.exp(-distance)

    return {
        "RBF": (kernels.RBF(0.8), lambda x, y: np.exp(-squared(x, y) / (2 * 0.8**2))),
        "Exponential": (kernels.Exponential(), lambda x, y: np.exp(x @ y.T)),
        "Linear": (kernels.Linear(), lambda x, y: x @ y.T),
        "Polynomial": (kernels.Polynomial(3), lambda x, y: (x @ y.T + 1) ** 3),
        "Matérn 3/2": (kernels.Matern(1.5), matern),
    }


@claim(
    id="E-app-B.1",
    title="CME attention is a Gaussian-process posterior",
    statement="If values are r = f(c) + noise with f ∼ GP(0, K) and noise variance λ, then "
    "attn_CME is the posterior mean of f at the query, for every kernel; its posterior variance is "
    "K(q,q) − K(q,K)(K + λI)⁻¹K(K,q).",
    label="Appendix B.1, (4.5)",
)
def e_app_b_1(context: Context) -> Evidence:
    """Mean and variance of each kernel against conditioning the joint Gaussian of values and f."""
    measurements = []
    for name, (kernel, formula) in _members().items():
        mean_error = variance_error = 0.0
        for trial in range(context.pick(quick=5, paper=50)):
            rng = context.generator(e_app_b_1.id, name, trial)
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
    return Evidence(*measurements)


@claim(
    id="E-app-B.1-calibration",
    title="the error bars of attention are calibrated",
    statement="On sequences drawn from the latent Gaussian process, the predictive intervals of "
    "attn_CME cover at their nominal rate.",
    false_alarm=2e-4,
    controls=(
        Control("a ridge 20 % too small", changes={"ridge_factor": 0.8}),
        Control("a ridge 20 % too large", changes={"ridge_factor": 1.2}),
    ),
)
def e_app_b_1_calibration(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """Coverage of 95 % intervals and mean squared z over sequences drawn from the process."""
    length, ridge = 8, 0.3
    rng = context.generator(e_app_b_1_calibration.id)
    count = context.pick(quick=20_000, paper=100_000)
    tokens = rng.normal(size=(count, length + 1, 2))
    factor = np.linalg.cholesky(rbf(tokens, tokens) + 1e-10 * np.eye(length + 1))
    noise = np.sqrt(ridge) * rng.normal(size=(count, length + 1))
    values = np.einsum("nij,nj->ni", factor, rng.normal(size=(count, length + 1))) + noise
    module = attention.ConditionalMean(kernels.RBF(), ridge=ridge_factor * ridge)
    given = tokens[:, -1], tokens[:, :-1], values[:, :-1, None]
    mean, variance = module.posterior(*given, predictive=True)
    z = (values[:, -1] - np.asarray(mean)[:, 0]) / np.sqrt(np.asarray(variance))
    coverage = float(np.mean(np.abs(z) <= 1.959963984540054))
    # Both limits are 3.9 and 4.0 standard errors at 20 000 sequences.
    return Evidence(
        at_most("|coverage of 95 % intervals − 0.95|", abs(coverage - 0.95), 0.006),
        at_most("|mean z² − 1|", abs(float(np.mean(z**2)) - 1), 0.04),
        note=f"{count} sequences of {length} tokens; coverage {coverage:.4f}, mean z² "
        f"{np.mean(z**2):.4f}. A ridge 20 % too small would give 1.16.",
    )
