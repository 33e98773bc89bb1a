"""Proposition 4.2: softmax attention is the mean of a conditional kernel density."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, close


def density_mean_error(context: Context, claim_id: str, dimension: int, constant: float) -> float:
    """Largest ‖attn_SM − C ∫ v p̂(v|q) dv‖ with C = ``constant``, tokens on the unit sphere."""
    nodes, weights = attention.sphere_rule(dimension, degree=40)
    smoother = attention.KernelSmoother(kernels.Exponential())
    worst = 0.0
    for trial in range(context.pick(quick=5, paper=50)):
        rng = context.generator(claim_id, dimension, trial)
        query, keys, values = (
            tokens / np.linalg.norm(tokens, axis=1)[:, None]
            for tokens in (
                rng.normal(size=(4, 3)),
                rng.normal(size=(15, 3)),
                rng.normal(size=(15, dimension)),
            )
        )
        density = np.asarray(smoother.density(nodes, query, keys, values))
        mean = (density * weights) @ nodes
        output = np.asarray(attention.Softmax()(query, keys, values))
        worst = max(worst, np.abs(output - constant * mean).max())
    return worst


def run(context: Context) -> Evidence:
    """∫ v p̂(v|q) dv by quadrature on spheres in 2, 3 and 4 dimensions."""
    return Evidence(
        tuple(
            close(
                f"d = {dimension}: attn_SM − (1/C₁) ∫ v p̂(v|q) dv",
                density_mean_error(
                    context, CLAIM.id, dimension, 1 / attention.sphere_constants(dimension).c1
                ),
                1e-10,
            )
            for dimension in (2, 3, 4)
        )
    )


CLAIM = Claim(
    id="E-prop-4.2",
    title="softmax attention is the mean of a kernel density",
    statement="On the unit sphere attn_SM(q, K, V) = C ∫ v p̂(v|q) dv with p̂ of (4.11) and "
    "C = 1/C₁.",
    paper="E",
    label="Proposition 4.2",
    run=run,
)
