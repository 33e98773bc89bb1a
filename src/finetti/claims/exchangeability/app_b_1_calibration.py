"""The error bars of CME attention are right on data from the model."""

from functools import partial

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Control, Evidence, at_most

LENGTH, RIDGE = 8, 0.3


def run(context: Context, ridge_factor: float = 1.0) -> Evidence:
    """Coverage of 95 % intervals and mean squared z over sequences drawn from the process."""
    rng = context.generator(CLAIM.id)
    count = context.pick(quick=20_000, paper=100_000)
    tokens = rng.normal(size=(count, LENGTH + 1, 2))
    squared = np.sum((tokens[:, :, None] - tokens[:, None]) ** 2, axis=-1)
    factor = np.linalg.cholesky(np.exp(-squared / 2) + 1e-10 * np.eye(LENGTH + 1))
    noise = np.sqrt(RIDGE) * rng.normal(size=(count, LENGTH + 1))
    values = np.einsum("nij,nj->ni", factor, rng.normal(size=(count, LENGTH + 1))) + noise
    module = attention.ConditionalMean(kernels.RBF(), ridge=ridge_factor * RIDGE)
    mean, variance = module.posterior(
        tokens[:, -1], tokens[:, :-1], values[:, :-1, None], predictive=True
    )
    z = (values[:, -1] - np.asarray(mean)[:, 0]) / np.sqrt(np.asarray(variance))
    coverage = float(np.mean(np.abs(z) <= 1.959963984540054))
    # Both limits are 3.9 and 4.0 standard errors at 20 000 sequences.
    return Evidence(
        (
            at_most("|coverage of 95 % intervals − 0.95|", abs(coverage - 0.95), 0.006),
            at_most("|mean z² − 1|", abs(float(np.mean(z**2)) - 1), 0.04),
        ),
        note=f"{count} sequences of {LENGTH} tokens; coverage {coverage:.4f}, mean z² "
        f"{np.mean(z**2):.4f}. A ridge 20 % too small would give 1.16.",
    )


CLAIM = Claim(
    id="E-app-B.1-calibration",
    title="the error bars of attention are calibrated",
    statement="On sequences drawn from the latent Gaussian process, the predictive intervals of "
    "attn_CME cover at their nominal rate.",
    paper="E",
    label="Appendix B.1",
    run=run,
    false_alarm=2e-4,
    controls=(
        Control("a ridge 20 % too small", partial(run, ridge_factor=0.8)),
        Control("a ridge 20 % too large", partial(run, ridge_factor=1.2)),
    ),
)
