"""Softmax attention is a kernel smoother."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, close


def run(context: Context) -> Evidence:
    """Softmax against the exponential smoother, JAX's own attention, and RBF on the sphere."""
    import jax

    smoother = sphere = library = 0.0
    for trial in range(context.pick(quick=10, paper=100)):
        rng = context.generator(CLAIM.id, trial)
        query, keys = rng.normal(size=(6, 4)), rng.normal(size=(20, 4))
        values = rng.normal(size=(20, 4))
        output = np.asarray(attention.Softmax()(query, keys, values))
        exponential = attention.KernelSmoother(kernels.Exponential())
        smoother = max(smoother, np.abs(output - exponential(query, keys, values)).max())
        heads = [tokens[None, :, None] for tokens in (query, keys, values)]
        theirs = jax.nn.dot_product_attention(heads[0], heads[1], heads[2], scale=1.0)
        library = max(library, np.abs(output - np.asarray(theirs)[0, :, 0]).max())
        units = [tokens / np.linalg.norm(tokens, axis=1)[:, None] for tokens in (query, keys)]
        rbf = attention.KernelSmoother(kernels.RBF())
        gap = exponential(units[0], units[1], values) - rbf(units[0], units[1], values)
        sphere = max(sphere, np.abs(gap).max())
    return Evidence(
        (
            close("softmax − exponential kernel smoother", smoother, 1e-12),
            # JAX normalizes its scores in float32 whatever the input.
            close("softmax − jax.nn.dot_product_attention at scale 1", library, 2e-6),
            close("on the unit sphere: exponential − RBF smoother", sphere, 1e-12),
        )
    )


CLAIM = Claim(
    id="E-eq-4.10",
    title="softmax attention is a kernel smoother",
    statement="attn_SM is the Nadaraya–Watson smoother of the exponential kernel, and on the unit "
    "sphere that of the RBF kernel.",
    paper="E",
    label="(4.9), (4.10)",
    run=run,
)
