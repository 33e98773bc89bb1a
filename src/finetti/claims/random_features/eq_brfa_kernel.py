"""The kernel of biased random-feature attention."""

from typing import Any

import numpy as np

from finetti import attention
from finetti.claims.claim import Claim, Context, Evidence, Measurement, at_least
from finetti.claims.random_features.support import (
    DIMENSION,
    Inputs,
    draw_inputs,
    estimate_kernel,
)


def measure(
    context: Context, name: str, mean_weights: Any, inputs: Inputs
) -> tuple[tuple[Measurement, ...], float]:
    """Measurements of one W₀, and how far the estimate is from the kernel without it."""
    estimate = estimate_kernel(
        context,
        f"{CLAIM.id}-{name}",
        lambda key, heads: attention.RandomFeatureAttention(
            key, heads, DIMENSION, mean_weights=mean_weights
        ),
        inputs,
    )
    exact = inputs.exact(attention.InfiniteHeadKernel(DIMENSION, mean_weights))
    unbiased = estimate.distance(inputs.exact(attention.InfiniteHeadKernel(DIMENSION)))
    return estimate.against(exact, f"{name} W₀, "), float(unbiased.max())


def run(context: Context) -> Evidence:
    """Many biased heads against the bivariate-normal form, for the identity and a random W₀."""
    rng = context.generator(CLAIM.id)
    inputs = draw_inputs(rng, pairs=2)
    matrix = rng.normal(size=(DIMENSION + 1, DIMENSION + 1)) / 2
    identity, contrast = measure(context, "identity", "identity", inputs)
    random, _ = measure(context, "random", matrix, inputs)
    return Evidence(
        (
            *identity,
            *random,
            at_least("W₀ = I against the kernel without W₀, in standard errors", contrast, 20.0),
        ),
        note="The identity is [[I, 0], [0, 0]]; the random W₀ has norm "
        f"{np.linalg.norm(matrix):.2f}.",
    )


CLAIM = Claim(
    id="R-eq-brfa-kernel",
    title="the kernel of biased heads",
    statement="With mean weights W₀ the kernel is (1/N²) Σ_ij E[σ(t_i + g) σ(t'_j + g')] "
    "⟨x̃_i, x̃'_j⟩ with t_i = ⟨W₀, x̃₀x̃_iᵀ⟩ and normal g, g' of correlation u_ij, which is elementary "
    "up to the bivariate normal distribution function. The model is stated from knowledge of the "
    "paper, the kernel is derived from it.",
    paper="R",
    label="biased RFA (stated from knowledge; kernel derived)",
    run=run,
    # Four comparisons at 4 standard errors, 6.3e-5 each.
    false_alarm=2.6e-4,
)
