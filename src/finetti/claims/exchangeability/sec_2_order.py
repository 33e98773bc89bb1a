"""Attention reads a set: the order of the tokens does not matter."""

import numpy as np

from finetti import attention, kernels
from finetti.claims.claim import Claim, Context, Evidence, at_least, close


def run(context: Context) -> Evidence:
    """The change of the output when the tokens are permuted, and when only their values are."""
    members = {
        "softmax": attention.Softmax(),
        "RBF smoother": attention.KernelSmoother(kernels.RBF()),
        "conditional mean": attention.ConditionalMean(kernels.RBF(), ridge=0.1),
    }
    measurements = []
    for name, module in members.items():
        worst, least = 0.0, np.inf
        for trial in range(context.pick(quick=10, paper=100)):
            rng = context.generator(CLAIM.id, name, trial)
            query, keys = rng.normal(size=(4, 3)), rng.normal(size=(30, 3))
            values, order = rng.normal(size=(30, 2)), rng.permutation(30)
            before = np.asarray(module(query, keys, values))
            after = np.asarray(module(query, keys[order], values[order]))
            apart = np.asarray(module(query, keys, values[order]))
            worst = max(worst, np.abs(after - before).max())
            least = min(least, np.abs(apart - before).max())
        measurements.append(close(f"{name}: change under permutation", worst, 1e-12))
        measurements.append(at_least(f"{name}: smallest change, values alone", least, 0.01))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="E-sec-2-order",
    title="attention reads a set",
    statement="attn(q, K, V) does not change when the tokens are permuted: positions, where they "
    "matter, are part of the token.",
    paper="E",
    label="Section 2",
    run=run,
)
