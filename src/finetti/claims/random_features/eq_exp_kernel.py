"""The kernel of exponential heads, a variant of the paper's model."""

from finetti import attention
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.random_features.support import DIMENSION, draw_inputs, estimate_kernel


def run(context: Context) -> Evidence:
    """Many exponential heads against the log-normal mean, without and with W₀ = I."""
    inputs = draw_inputs(context.generator(CLAIM.id), pairs=2)
    measurements = []
    for name, mean_weights in (("zero", None), ("identity", "identity")):
        estimate = estimate_kernel(
            context,
            f"{CLAIM.id}-{name}",
            lambda key, heads, mean=mean_weights: attention.RandomFeatureAttention(
                key, heads, DIMENSION, mean_weights=mean, activation="exponential"
            ),
            inputs,
        )
        kernel = attention.InfiniteHeadKernel(DIMENSION, mean_weights, "exponential")
        measurements.extend(estimate.against(inputs.exact(kernel), f"{name} W₀, "))
    return Evidence(
        tuple(measurements),
        note="With the softmax over keys instead there is no closed form.",
    )


CLAIM = Claim(
    id="R-eq-exp-kernel",
    title="the kernel of exponential heads",
    statement="With exp in place of σ the kernel is (1/N²) Σ_ij exp(t_i + t'_j + 1 + u_ij) "
    "⟨x̃_i, x̃'_j⟩ on the unit sphere: the mean of a log-normal. A variant of the paper's model, "
    "derived here.",
    paper="R",
    label="exponential variant (ours)",
    run=run,
    # Four comparisons at 4 standard errors; the log-normal's skewness makes each about 1.2e-4.
    false_alarm=5e-4,
)
