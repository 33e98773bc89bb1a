"""The excess-risk theorems of paper R: the complexity that their samples' part is the rate of."""

import math

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import random_features as bounds
from finetti.claims.claim import Claim, Context
from finetti.claims.measures import PowerLaw
from finetti.claims.perturbations import unit_vectors
from finetti.claims.random_features.random_inputs import DIMENSION, LENGTH, random_heads

HEADS = 100


def _complexity(context: Context, samples: int) -> float:
    """E max_m ‖(1/n)Σ_j ±φ_m(x_j)‖: the complexity of {Σ‖v_m‖ ≤ 1}, over drawn signs."""
    rng = context.draws(samples)
    module = random_heads(context.random_key(HEADS), HEADS)
    query = unit_vectors(rng, samples, DIMENSION)
    keys = unit_vectors(rng, samples, LENGTH, DIMENSION)
    features = np.asarray(module.features(query, keys)).reshape(samples, -1) * HEADS**0.5
    signs = rng.choice([-1.0, 1.0], size=(context.pick(quick=200, paper=2000), samples))
    sums = (signs @ features / samples).reshape(len(signs), HEADS, DIMENSION + 1)
    return float(np.linalg.norm(sums, axis=2).max(axis=1).mean())


def _samples_part(context: Context, samples: int) -> float:
    """The theorem's part that falls with the samples, at B = 1."""
    features = bounds.RandomFeatureClass(DIMENSION, HEADS, squared_norm=1.0)
    sample = Sample(samples, LENGTH, delta=0.05)
    return math.exp(bounds.RandomFeatureRisk(features).evaluate(sample).terms[0].log_value)


R_THM_RISK = Claim(
    id="R-thm-risk",
    title="excess risk of random-feature attention",
    statement="The empirical risk minimizer over Σ‖v_m‖ ≤ C√B, Σ‖v_m‖² ≤ CB/(δM) has an excess "
    "risk with a part that falls with the samples, like the class's complexity, and one with the "
    "heads, which R-rate-approximation measures. Stated from knowledge of the paper; its constant "
    "is not known.",
    formula=r"L(\hat{f}) − L(f^*) ≲ \sqrt{B} [\sqrt{\frac{log(d M) log(n N M) + log(1/δ)}{n}} + "
    r"\sqrt{\frac{d^2 + log M}{δ M}}]",
    label="excess-risk theorem (stated from knowledge)",
    # 20 seeds: slopes of −0.496 with a spread of 0.010, 4.5 of them from the nearer end.
    false_alarm=1e-5,
    measure=PowerLaw(
        error=_complexity,
        sizes=(64, 256, 1024, 4096),
        slope=(-0.55, -0.45),
        size_name="samples n",
        error_name="complexity of the class",
        bound=_samples_part,
        share=(0.02, 1.0),
    ),
)


R_THM_BIASED_RISK = Claim(
    id="R-thm-biased-risk",
    title="excess risk of biased random-feature attention",
    statement="For functions of correlations F(⟨x₀, x⟩)⟨β, x⟩ the theorem on random-feature "
    "attention holds of biased heads with their norm, and its samples' part is free of d but for a "
    "logarithm. Stated from knowledge of the paper, with the derived norm; its constant is not "
    "known.",
    formula=r"L(\hat{f}) − L(f^*) ≲ inf_L \sqrt{B(f^*, L)} [\sqrt{\frac{log(d M) log(n N M) + "
    r"log(1/δ)}{n}} + \sqrt{\frac{d^2 + log M}{δ M}}] + ε_L ‖F‖_∞",
    label="theorem on biased attention (stated from knowledge)",
    rests_on=("R-thm-risk", "R-norm-brfa"),
)
