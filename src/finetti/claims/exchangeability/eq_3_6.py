"""The latent regression's posterior mean is attention with a linear kernel."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, close
from finetti.claims.exchangeability.regression import condition, draw_regression


def run(context: Context) -> Evidence:
    """CME attention against conditioning the joint Gaussian of all r's, and against its primal."""
    worst = primal = 0.0
    for trial in range(context.pick(quick=20, paper=200)):
        world = draw_regression(context.generator(CLAIM.id, trial))
        ridge = world.noise / world.prior
        module = attention.ConditionalMean(kernels.Linear(), ridge=ridge)
        mean = np.asarray(module(world.query, world.keys, world.values))
        exact, _ = condition(world)
        worst = max(worst, np.abs(mean - exact).max() / np.abs(exact).max())
        normal = world.keys.T @ world.keys + ridge * np.eye(world.keys.shape[1])
        latent = world.values.T @ world.keys @ np.linalg.inv(normal)
        primal = max(primal, np.abs(latent @ world.query - exact).max() / np.abs(exact).max())
    return Evidence(
        (
            close("attention − Bayes posterior mean (relative)", worst, 1e-10),
            close("primal form − Bayes posterior mean (relative)", primal, 1e-10),
        ),
        note="3 to 30 tokens of dimension 1 to 6; noise and prior variances from 0.1 to 10.",
    )


CLAIM = Claim(
    id="E-eq-3.6",
    title="linear CME attention is the latent posterior mean",
    statement="If r = zc + noise with a Gaussian latent z, then E[z|X]c is attention with values "
    "r, keys c and a linear kernel: Rᵀ(CCᵀ + λI)⁻¹Cc, λ = noise / prior variance.",
    paper="E",
    label="(3.6), (3.12)",
    run=run,
)
