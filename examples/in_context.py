"""In-context regression: the same small network, trained with CME and with softmax attention.

Every sequence is a new random function: 16 noisy pairs (x, y) to read, and x alone where y is
asked. The network embeds x as query and as key, and y is the value; only the attention differs.
With optax installed: python examples/in_context.py --out in_context.svg
"""

import argparse

import altair as alt
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from finetti.attention import Attention, ConditionalMean, Softmax
from finetti.kernels import RBF
from finetti.show import Chart
from finetti.show.theme import INK, PALETTE, chart_config

ATTENTIONS = {"CME attention": ConditionalMean(RBF(), ridge=0.1), "softmax attention": Softmax()}
ADAM = optax.adam(3e-3)


class Network(eqx.Module):
    """Attention over embeddings φ(x)."""

    phi: eqx.nn.MLP
    attention: Attention

    def tokens(self, x, y, query):
        """Query, keys and values of a batch of sequences."""
        phi = jax.vmap(jax.vmap(self.phi))
        return phi(query), phi(x), y


def draw(key, batch, query=None):
    """(x, y, query) of new functions f, sums of three sines with variance 1, and f(query)."""
    places, heights, slopes, phases, noise = jax.random.split(key, 5)
    x = jax.random.uniform(places, (batch, 32, 1), minval=-3, maxval=3)
    x, query = x[:, :16], x[:, 16:] if query is None else query
    height = jax.random.normal(heights, (batch, 1, 3)) * (2 / 3) ** 0.5
    slope = jax.random.uniform(slopes, (batch, 1, 3), maxval=3)
    phase = jax.random.uniform(phases, (batch, 1, 3), maxval=2 * np.pi)
    f, target = ((height * jnp.sin(slope * at + phase)).sum(2, keepdims=True) for at in (x, query))
    return (x, f + 0.1 * jax.random.normal(noise, f.shape), query), target


@eqx.filter_jit
def error(network, key, batch):
    """Mean squared error on new functions."""
    sequences, target = draw(key, batch)
    return jnp.mean((network.attention(*network.tokens(*sequences)) - target) ** 2)


@eqx.filter_jit
def step(network, state, key):
    """One step of Adam."""
    updates, state = ADAM.update(eqx.filter_grad(error)(network, key, 32), state)
    return eqx.apply_updates(network, updates), state


def train(name, seed, steps):
    """A network, and its test error along the way."""
    init, *keys = jax.random.split(jax.random.key(seed), steps + 1)
    network = Network(eqx.nn.MLP(1, 16, 64, 2, key=init), ATTENTIONS[name])
    state, curve = ADAM.init(eqx.filter(network, eqx.is_array)), []
    for i, key in enumerate(keys, start=1):
        network, state = step(network, state, key)
        if i == 1 or i % 10 == 0:
            curve.append((name, i, float(error(network, jax.random.key(10**6), 500))))
    return network, pd.DataFrame(curve, columns=["attention", "step", "error"])


def read(cme, softmax):
    """One more context, the truth, and what both networks read: the mean ± 2 deviations for CME."""
    grid = jnp.linspace(-3.5, 3.5, 141)
    (x, y, query), truth = draw(jax.random.key(0), 1, grid[None, :, None])
    mean, variance = cme.attention.posterior(*cme.tokens(x, y, query))
    other, bar = softmax.attention(*softmax.tokens(x, y, query)), 2 * jnp.sqrt(variance[0])
    lines = [
        pd.DataFrame({"x": grid, "middle": line[0, :, 0], "attention": name})
        for name, line in zip([*ATTENTIONS, "truth"], (mean, other, truth), strict=True)
    ]
    lines[0] = lines[0].assign(low=mean[0, :, 0] - bar, high=mean[0, :, 0] + bar)
    return pd.DataFrame({"x": x.ravel(), "y": y.ravel()}), pd.concat(lines)


def panel(rows, title, x, x_title, y_title, ticks=alt.Undefined, **scale):
    """Lines with bands."""
    look = {"symbolType": "stroke", "symbolSize": 300, "symbolStrokeWidth": 2.5, "symbolOpacity": 1}
    names, legend = [*ATTENTIONS, "truth"], alt.Legend(orient="top", title=None, **look)
    colors = alt.Scale(domain=names, range=[*PALETTE[:2], INK])
    dashes = alt.Scale(domain=names, range=[[1, 0], [1, 0], [5, 3]])
    chart = alt.Chart(rows, title=title, width=340, height=260).encode(
        alt.X(x, type="quantitative", title=x_title),
        alt.Color("attention:N", scale=colors, legend=legend),
    )
    scale, axis = alt.Scale(nice=False, **scale), alt.Axis(title=y_title, values=ticks)
    low = alt.Y("low:Q", scale=scale, axis=axis)
    band = chart.mark_area(opacity=0.2, stroke=None).encode(low, alt.Y2("high:Q"))
    dash = alt.StrokeDash("attention:N", scale=dashes, legend=legend)
    return band + chart.mark_line().encode(alt.Y("middle:Q"), dash)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="in_context.svg")
    options = parser.parse_args()
    runs = [[train(name, s, options.steps) for s in range(options.seeds)] for name in ATTENTIONS]
    errors = pd.concat(curve for each in runs for _, curve in each).groupby(["attention", "step"])
    ranges = errors.error.agg(low="min", middle="median", high="max").reset_index()
    print(ranges[ranges.step == ranges.step.max()].to_string(index=False))
    title = f"Error on new functions, {options.seeds} trainings: median and range"
    ticks = [0.05, 0.1, 0.2, 0.5, 1]
    left = panel(ranges, title, "step", "training step", "mean squared error", ticks, type="log")
    context, lines = read(*(each[0][0] for each in runs))
    title = "One new context, read with an error bar (± 2 s.d.)"
    dots = alt.Chart(context).mark_point(color=INK, opacity=1).encode(x="x:Q", y="y:Q")
    right = panel(lines, title, "x", "x", "y") + dots
    Chart((left | right).to_dict(), config=chart_config()).save(options.out)
