"""The predictive variance of the latent regression is that of the attention posterior."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, close
from finetti.claims.exchangeability.regression import condition, draw_regression


def run(context: Context) -> Evidence:
    """`ConditionalMean.posterior` against the closed form and against joint conditioning."""
    closed = brute = 0.0
    for trial in range(context.pick(quick=20, paper=200)):
        world = draw_regression(context.generator(CLAIM.id, trial))
        module = attention.ConditionalMean(world.prior * kernels.Linear(), ridge=world.noise)
        _, variance = module.posterior(world.query, world.keys, world.values, predictive=True)
        ridge = world.noise / world.prior
        normal = world.keys.T @ world.keys + ridge * np.eye(world.keys.shape[1])
        formula = float(world.noise * (1 + world.query @ np.linalg.solve(normal, world.query)))
        _, exact = condition(world)
        closed = max(closed, abs(float(variance) / formula - 1))
        brute = max(brute, abs(float(variance) / exact - 1))
    return Evidence(
        (
            close("attention variance − σ²(1 + cᵀ(CᵀC + λI)⁻¹c) (relative)", closed, 1e-10),
            close("attention variance − joint conditioning (relative)", brute, 1e-10),
        )
    )


CLAIM = Claim(
    id="E-eq-3.7",
    title="the predictive variance is the attention posterior's",
    statement="Given the context, a new r at c is Gaussian around the attention output with "
    "variance σ̃² = σ²(1 + cᵀ(CᵀC + λI)⁻¹c); the paper approximates it by a constant.",
    paper="E",
    label="(3.7)",
    run=run,
)
