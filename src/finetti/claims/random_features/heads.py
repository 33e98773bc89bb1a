"""The model of paper R: how its heads are drawn, what they read, and how fast they average."""

from functools import partial
from typing import Any

import numpy as np

from finetti import attention, core
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, trend, within
from finetti.claims.perturbations import unit_vectors
from finetti.claims.random_features.support import DIMENSION, LENGTH, draw_inputs
from finetti.claims.wrong import louder, times


@claim(
    id="R-def-factored",
    title="factored heads tend to direct ones",
    statement="W = QᵀK/(2√D) with entries of Q and K iid N(0, 1) has scores of variance 1 and "
    "fourth moment 3 + 6/D on the unit sphere: they tend to the normal scores of a W with entries "
    "iid N(0, 1/4), and the kernel tends to that of RFA. The limit is stated from knowledge of the "
    "paper, the moment is derived.",
    formula=r"W = \frac{Q^⊤ K}{2 \sqrt{D}},  E[⟨W, \tilde{x}_0 \tilde{x}_i^⊤⟩^4] = 3 + \frac{6}{D}",
    label="sampling of the heads (stated from knowledge)",
    # Two moments at 4 standard errors; at D = 4 score⁴ is skewed.
    false_alarm=4e-4,
    controls=(
        Control(
            "scores 5 % too large",
            breaks={"finetti.attention.RandomFeatureAttention.preactivations": times(1.05)},
        ),
    ),
)
def r_def_factored(context: Context) -> Evidence:
    """Fourth moment of the scores against 3 + 6/D, and the way of the kernel from D = 1 to 32."""
    portion = 40_000
    inputs = draw_inputs(context.generator(r_def_factored.id), pairs=4)
    exact = inputs.exact(attention.InfiniteHeadKernel(DIMENSION))
    measurements, gaps = [], {}
    for rows in (1, 4, 32):
        contributions, scores = [], []
        for part in range(context.pick(quick=4, paper=40)):
            key = context.random_key(r_def_factored.id, rows, part)
            module = attention.RandomFeatureAttention(
                key, portion, DIMENSION, sampling="factored", head_dimension=rows
            )
            contributions.append(inputs.contributions(module, portion))
            scores.append(module.preactivations(inputs.query[0], inputs.keys[0, :1])[:, 0])
        gaps[rows] = abs(np.mean(np.concatenate(contributions).mean(axis=0) - exact))
        if rows > 1:  # at D = 1 the eighth moment, which the standard error needs, is out of reach
            fourth = np.concatenate(scores) ** 4
            miss = abs(fourth.mean() - 3 - 6 / rows)
            error = miss / (fourth.std(ddof=1) / np.sqrt(len(fourth)))
            name = f"D = {rows}: |mean score⁴ − (3 + 6/D)| in standard errors"
            measurements.append(at_most(name, error, 4.0))
    distances = ", ".join(f"{gap:.4f} at D = {rows}" for rows, gap in gaps.items())
    return Evidence(
        *measurements,
        at_most("distance to the kernel at D = 32, over that at D = 1", gaps[32] / gaps[1], 0.25),
        note=f"Mean distance to the kernel of direct sampling over four pairs: {distances}.",
    )


@claim(
    id="R-def-order",
    title="random-feature attention reads a set",
    statement="Random-feature attention and its kernel do not change when the keys are permuted, "
    "with any activation and any W₀; a random-feature network on the concatenated tokens does. "
    "Derived from the model.",
    formula="f(x_0; π x_{1:N}) = f(x_0; x_{1:N})",
    label="model (stated from knowledge)",
    controls=(
        Control(
            "later keys that weigh more",
            breaks={"finetti.attention.RandomFeatureAttention.__call__": louder(2)},
        ),
    ),
)
def r_def_order(context: Context) -> Evidence:
    """The change of the output and of the kernel when the keys are permuted."""
    heads = 200
    settings: dict[str, Any] = {"RFA": {}, "BRFA": {"mean_weights": "identity"}}
    settings |= {name: {"activation": name} for name in ("exponential", "softmax")}
    rng = context.generator(r_def_order.id)
    trials = context.pick(quick=20, paper=200)
    query = unit_vectors(rng, trials, DIMENSION)
    keys = unit_vectors(rng, trials, LENGTH, DIMENSION)
    # A cyclic shift moves every key.
    moved = np.roll(keys, 1, axis=1)
    measurements = []
    for name, options in settings.items():
        module = attention.RandomFeatureAttention(
            context.random_key(r_def_order.id, name), heads, DIMENSION, **options
        ).with_values(rng.normal(size=(heads, DIMENSION + 1)) / heads)
        change = np.abs(np.asarray(module(query, moved) - module(query, keys)))
        measurements.append(close(f"{name}: change under permutation", change.max(), 1e-12))
        spread = np.std(np.asarray(module(query, keys)))
        measurements.append(at_least(f"{name}: spread over the inputs", spread, 1e-3))
        if name != "softmax":
            kernel = module.infinite_kernel()
            change = np.abs(np.asarray(kernel.gram(query, moved) - kernel.gram(query, keys)))
            measurements.append(close(f"{name}: change of the kernel", change.max(), 1e-12))
    network = attention.RandomFeatureMLP(
        context.random_key(r_def_order.id, "RFMLP"), heads, DIMENSION, LENGTH
    ).with_values(rng.normal(size=heads) / heads)
    change = np.abs(np.asarray(network(query, moved) - network(query, keys)))
    return Evidence(*measurements, at_least("RFMLP: change under permutation", change.max(), 1e-3))


@claim(
    id="R-rate-heads",
    title="heads approach their kernel like M^(-1/2)",
    statement="Φ(x)·Φ(x') of M independent heads is unbiased for the infinite-head kernel, with an "
    "error that falls like M^(-1/2). Derived: a mean of M independent terms.",
    formula=r"E(Φ(x)·Φ(x′) − K(x,x′))^2 ∝ \frac{1}{M}",
    label="finite heads (derived)",
    # Three slopes at ±0.05; the measured spread of a slope is at most 0.009, so 5.5 of them each.
    false_alarm=1e-6,
    controls=(
        Control(
            "a kernel 20 % too large",
            breaks={"finetti.attention.InfiniteHeadKernel.gram": times(1.2)},
        ),
    ),
)
def r_rate_heads(context: Context) -> Evidence:
    """Slope in M of the root mean square of Φ(x)·Φ(x') − K(x, x') over independent draws."""
    counts = (16, 64, 256, 1024)
    total = counts[-1] * context.pick(quick=200, paper=2_000)
    inputs = draw_inputs(context.generator(r_rate_heads.id), pairs=3)
    biased = partial(attention.RandomFeatureAttention, mean_weights="identity")
    network = partial(attention.RandomFeatureMLP, context_length=LENGTH)
    members = {"RFA": attention.RandomFeatureAttention, "BRFA": biased, "RFMLP": network}
    measurements, records = [], []
    for name, make in members.items():
        module: Any = make(context.random_key(r_rate_heads.id, name), total, DIMENSION)
        samples = inputs.contributions(module, total) - inputs.exact(module.infinite_kernel())
        errors = []
        for count in counts:
            # One draw of many heads, cut into independent models of ``count`` heads each.
            misses = samples.reshape(total // count, count, -1).mean(axis=1)
            errors.append(float(np.sqrt(np.mean(misses**2))))
            records.append({"heads": count, "error": errors[-1], "model": name})
        slope = core.power_law_slope(counts, errors)
        measurements.append(within(f"{name}: slope in M", slope.value, -0.55, -0.45))
    axes = {"heads": "heads or neurons M", "error": "root mean square error"}
    chart = trend(records, axes, "Random heads approach their kernel", color="model", log_y=True)
    return Evidence(*measurements, charts=(chart,))
