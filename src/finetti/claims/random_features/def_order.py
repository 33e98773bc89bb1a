"""Random-feature attention reads a set; the network it is compared with does not."""

import numpy as np

from finetti import attention
from finetti.claims.claim import Claim, Context, Evidence, at_least, close
from finetti.claims.random_features.support import DIMENSION, LENGTH, draw_unit

HEADS = 200


def run(context: Context) -> Evidence:
    """The change of the output and of the kernel when the keys are permuted."""
    settings = {
        "RFA": {},
        "BRFA": {"mean_weights": "identity"},
        "exponential": {"activation": "exponential"},
        "softmax": {"activation": "softmax"},
    }
    rng = context.generator(CLAIM.id)
    trials = context.pick(quick=20, paper=200)
    query, keys = draw_unit(rng, trials), draw_unit(rng, trials, LENGTH)
    # A cyclic shift moves every key.
    moved = np.roll(keys, 1, axis=1)
    measurements = []
    for name, options in settings.items():
        module = attention.RandomFeatureAttention(
            context.random_key(CLAIM.id, name), HEADS, DIMENSION, **options
        ).with_values(rng.normal(size=(HEADS, DIMENSION + 1)) / HEADS)
        change = np.abs(np.asarray(module(query, moved) - module(query, keys)))
        measurements.append(close(f"{name}: change under permutation", change.max(), 1e-12))
        spread = float(np.std(np.asarray(module(query, keys))))
        measurements.append(at_least(f"{name}: spread over the inputs", spread, 1e-3))
        if name != "softmax":
            kernel = module.infinite_kernel()
            change = np.abs(np.asarray(kernel.gram(query, moved) - kernel.gram(query, keys)))
            measurements.append(close(f"{name}: change of the kernel", change.max(), 1e-12))
    network = attention.RandomFeatureMLP(
        context.random_key(CLAIM.id, "RFMLP"), HEADS, DIMENSION, LENGTH
    ).with_values(rng.normal(size=HEADS) / HEADS)
    change = np.abs(np.asarray(network(query, moved) - network(query, keys)))
    measurements.append(at_least("RFMLP: change under permutation", change.max(), 1e-3))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="R-def-order",
    title="random-feature attention reads a set",
    statement="Random-feature attention and its kernel do not change when the keys are permuted, "
    "with any activation and any W₀; a random-feature network on the concatenated tokens does. "
    "Derived from the model.",
    paper="R",
    label="model (stated from knowledge)",
    run=run,
)
