"""Erratum 2: the ridge is noise over prior variance, not the prior variance."""

import dataclasses

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, Verdict, close
from finetti.claims.exchangeability.regression import Regression, condition, draw_regression


def run(context: Context) -> Evidence:
    """The Bayes mean under the prior N(0, λI), against attention with the ridge λ and σ²/λ."""
    printed = derived = 0.0
    for trial in range(20):
        world = draw_regression(context.generator(CLAIM.id, trial))
        world = dataclasses.replace(world, noise=0.25)
        exact, _ = condition(world)

        def error(ridge: float, world: Regression = world, exact: np.ndarray = exact) -> float:
            module = attention.ConditionalMean(kernels.Linear(), ridge=ridge)
            mean = np.asarray(module(world.query, world.keys, world.values))
            return np.abs(mean - exact).max() / np.abs(exact).max()

        printed = max(printed, error(world.prior))
        derived = max(derived, error(world.noise / world.prior))
    return Evidence(
        (close("attention with ridge λ − Bayes mean under N(0, λI) (relative)", printed, 1e-10),),
        (close("attention with ridge σ²/λ − the same (relative)", derived, 1e-10),),
    )


CLAIM = Claim(
    id="E-erratum-2",
    title="printed: the ridge is the prior variance λ",
    statement="With the prior z ∼ N(0, λI), the posterior mean is Rᵀ(CCᵀ + λI)⁻¹C.",
    paper="E",
    label="Section 3, below (3.3)",
    run=run,
    expected=Verdict.FAILS,
    erratum="The text can be read as giving z the prior N(0, λI) and the ridge λ. Bayes' rule "
    "gives the ridge σ²/τ² for noise σ² and prior variance τ².",
)
