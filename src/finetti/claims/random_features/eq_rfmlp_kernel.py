"""The kernel of the random-feature network that attention is compared with."""

from finetti import attention
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.random_features.support import (
    DIMENSION,
    LENGTH,
    draw_inputs,
    estimate_kernel,
)


def run(context: Context) -> Evidence:
    """Φ(x)·Φ(x') of many random neurons against κ₁, on three pairs of inputs."""
    inputs = draw_inputs(context.generator(CLAIM.id), pairs=3)
    exact = inputs.exact(attention.InfiniteMLPKernel(DIMENSION, LENGTH))
    estimate = estimate_kernel(
        context,
        CLAIM.id,
        lambda key, neurons: attention.RandomFeatureMLP(key, neurons, DIMENSION, LENGTH),
        inputs,
    )
    return Evidence(
        estimate.against(exact),
        note=f"{estimate.draws} neurons; first pair: {estimate.mean[0]:.5f} ± "
        f"{estimate.standard_error[0]:.5f} against {exact[0]:.5f}.",
    )


CLAIM = Claim(
    id="R-eq-rfmlp-kernel",
    title="the kernel of infinitely many neurons",
    statement="With w ∼ N(0, I/(N + 2)) and vec = [x₀; …; x_N; 1] of unit-norm tokens, "
    "E[σ⟨w, vec⟩ σ⟨w, vec'⟩] = κ₁(⟨vec, vec'⟩/(N + 2)). The model is stated from knowledge of the "
    "paper, the kernel is derived from it.",
    paper="R",
    label="RFMLP comparison (stated from knowledge; kernel derived)",
    run=run,
    # Three pairs at 4 standard errors, 6.3e-5 each.
    false_alarm=2e-4,
)
