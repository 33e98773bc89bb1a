"""Adding heads and concatenating them is the same."""

import numpy as np

from finetti import kernels
from finetti.claims.claim import Claim, Context, Evidence, at_least, close


def run(context: Context) -> Evidence:
    """Sum form against concatenated form and a loop, with each attention inside."""
    from finetti.attention import ConditionalMean, KernelSmoother, Softmax
    from finetti.attention.networks.multihead import MultiHead

    members = {
        "softmax": Softmax(),
        "RBF smoother": KernelSmoother(kernels.RBF()),
        "conditional mean": ConditionalMean(kernels.RBF(), ridge=0.3),
    }
    measurements = []
    for name, module in members.items():
        rng = context.generator(CLAIM.id, name)
        query, key, value = rng.normal(size=(3, 3, 6, 2))
        output = rng.normal(size=(3, 2, 6))
        tokens = rng.normal(size=(12, 6))
        # Concatenation with W_o is the sum whose values are W_v^h W_o^h.
        summed = MultiHead(query, key, value @ output, attention=module)
        beside = MultiHead(query, key, value, output, module).concatenated()
        parts = [module(tokens @ query[h], tokens @ key[h], tokens @ value[h]) for h in range(3)]
        loop = np.concatenate(parts, axis=1) @ np.concatenate(output)
        out = np.asarray(summed(tokens, tokens))
        error = max(np.abs(out - beside(tokens, tokens)).max(), np.abs(out - loop).max())
        measurements.append(close(f"{name}: sum − concatenation", error, 1e-10))
        measurements.append(at_least(f"{name}: largest output", float(np.abs(out).max()), 1.0))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="E-eq-B.2",
    title="adding heads is concatenating them",
    statement="Σ_h attn(q, XW_k^h, XW_v^h) is the concatenation of narrower heads times an output "
    "matrix, for every attention that is linear in its values.",
    paper="E",
    label="(B.2)",
    run=run,
)
