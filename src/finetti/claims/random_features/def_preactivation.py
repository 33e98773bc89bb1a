"""The variance 1/4 makes the scores of random heads standard normal."""

from functools import partial

import numpy as np

from finetti import attention
from finetti.claims.claim import Claim, Context, Control, Evidence, at_least, at_most
from finetti.claims.random_features.support import DIMENSION, draw_inputs


def run(context: Context, factor: float = 1.0) -> Evidence:
    """Kolmogorov–Smirnov against N(0, 1) over heads, and the covariance of two scores."""
    from scipy.stats import kstest

    count = context.pick(quick=200_000, paper=2_000_000)
    inputs = draw_inputs(context.generator(CLAIM.id), pairs=1)
    module = attention.RandomFeatureAttention(context.random_key(CLAIM.id), count, DIMENSION)
    scores, others = (
        factor * np.asarray(module.preactivations(query[0], keys[0, :1]))[:, 0]
        for query, keys in (
            (inputs.query, inputs.keys),
            (inputs.other_query, inputs.other_keys),
        )
    )
    predicted = (
        (1 + inputs.query[0] @ inputs.other_query[0])
        * (1 + inputs.keys[0, 0] @ inputs.other_keys[0, 0])
        / 4
    )
    products = scores * others
    error = products.std(ddof=1) / np.sqrt(count)
    biased = attention.RandomFeatureAttention(
        context.random_key(CLAIM.id, "biased"), count, DIMENSION, mean_weights="identity"
    )
    shifted = np.asarray(biased.preactivations(inputs.query[0], inputs.keys[0, :1]))[:, 0]
    mean = float(inputs.query[0] @ inputs.keys[0, 0])
    return Evidence(
        (
            at_least("p-value of N(0, 1)", kstest(scores, "norm").pvalue, 1e-4),
            at_least(
                "W₀ = I: p-value of N(⟨x₀, x₁⟩, 1)", kstest(shifted - mean, "norm").pvalue, 1e-4
            ),
            at_most(
                "|mean of the product of two scores − u| in standard errors",
                abs(products.mean() - predicted) / error,
                4.0,
            ),
        ),
        note=f"{count} heads.",
    )


CLAIM = Claim(
    id="R-def-preactivation",
    title="scores of random heads are standard normal",
    statement="With entries of W iid N(0, 1/4) and unit-norm tokens, ⟨W, x̃₀x̃_iᵀ⟩ ∼ N(0, 1), two "
    "such scores have covariance u_ij, and W₀ = [[I, 0], [0, 0]] moves the mean to ⟨x₀, x_i⟩. The "
    "sampling is stated from knowledge of the paper, the law of the scores is derived.",
    paper="R",
    label="sampling of the heads (stated from knowledge)",
    run=run,
    # Two p-values at 1e-4 and 4 standard errors once.
    false_alarm=2.7e-4,
    controls=(Control("entries of variance 0.27", partial(run, factor=(0.27 / 0.25) ** 0.5)),),
)
