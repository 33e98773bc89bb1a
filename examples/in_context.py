"""In-context regression: the same small network, trained with CME and with softmax attention.

Every sequence is a new function: 16 noisy pairs (x, y) to read, and x alone where y is asked. The
network embeds x as query and as key, and y is the value; only the attention differs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pandas as pd

from finetti.attention import ConditionalMean, Softmax
from finetti.display import line_chart, side_by_side

STEPS, SEEDS, ADAM = 300, 5, optax.adam(3e-3)


def draw(key, queries):
    """16 noisy pairs (x, y) of a new function, a sum of three sines, and the truth at queries."""
    places, heights, waves, noise = jax.random.split(key, 4)
    x = jax.random.uniform(places, (16, 1), minval=-3, maxval=3)
    height = jax.random.normal(heights, 3) * (2 / 3) ** 0.5  # so that the variance is 1
    slope, phase = jax.random.uniform(waves, (2, 3)) * jnp.array([[3], [2 * jnp.pi]])
    y, truth = (jnp.sin(slope * at + phase) @ height for at in (x, queries))
    return x, y + 0.1 * jax.random.normal(noise, 16), truth


def error(network, key):
    """Mean squared error on 32 new functions."""
    embed, attention = jax.vmap(jax.vmap(network[0])), network[1]
    places, functions = jax.random.split(key)
    queries = jax.random.uniform(places, (32, 16, 1), minval=-3, maxval=3)
    x, y, truth = jax.vmap(draw)(jax.random.split(functions, 32), queries)
    return jnp.mean((attention(embed(queries), embed(x), y) - truth) ** 2)


@eqx.filter_jit
def step(network, state, key):
    """One step of Adam, on functions that were not seen before."""
    loss, gradient = eqx.filter_value_and_grad(error)(network, key)
    updates, state = ADAM.update(gradient, state)
    return eqx.apply_updates(network, updates), state, loss


errors, answers, grid = [], [], jnp.linspace(-3.5, 3.5, 141)[:, None]
x, y, truth = draw(jax.random.key(0), grid)
for name, attention in {"CME": ConditionalMean(ridge=0.1), "softmax": Softmax()}.items():
    for seed in range(SEEDS):
        start, *keys = jax.random.split(jax.random.key(seed), STEPS + 1)
        network = eqx.nn.MLP(1, 16, 64, 2, key=start), attention
        state = ADAM.init(eqx.filter(network, eqx.is_array))
        for i, key in enumerate(keys):
            network, state, loss = step(network, state, key)
            errors.append((name, seed, i - i % 10, float(loss)))  # averages of ten steps
    embed, trained = jax.vmap(network[0]), network[1]
    tokens = embed(grid), embed(x), y
    mean = trained(*tokens)
    bar = 2 * trained.posterior(*tokens)[1] ** 0.5 if name == "CME" else jnp.nan
    answer = {"attention": name, "x": grid[:, 0], "y": mean, "low": mean - bar, "high": mean + bar}
    answers.append(pd.DataFrame(answer | {"truth": truth}))

errors = pd.DataFrame(errors, columns=["attention", "seed", "step", "error"])
errors = errors.groupby(["attention", "seed", "step"]).mean().reset_index()
last = errors[errors.step == errors.step.max()].groupby("attention").error
print(last.agg(["min", "median", "max"]))
title = f"Squared error on new functions: median, range of {SEEDS} trainings"
left = line_chart(errors, "step", "error", "attention", repeats=True, log_y=True, title=title)
context, title = pd.DataFrame({"x": x[:, 0], "y": y}), "One context: mean ± 2 s.d., truth dashed"
names = "x", "y", "attention", "low", "high", "truth"
right = line_chart(pd.concat(answers), *names, data=context, title=title)
side_by_side(left, right).save("in_context.svg")
