"""Lemma C.8: a small class of networks is covered."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Control, Evidence, at_most, close
from finetti.claims.exchangeability import by_hand
from finetti.claims.exchangeability.eq_g_5 import draw_network

TOKENS = np.array([0.6, -1.0, 0.9])
RESOLUTIONS = (0.02, 0.1, 0.5)
Covering = Callable[["bounds.FullTransformer", float, Sample], float]


def outputs(levels: int) -> np.ndarray:
    """X_1 of every one-dimensional layer with weights on a grid in [−1, 1]."""
    grid = np.linspace(-1, 1, levels)
    found = []
    for inner, outer, query, key, value in product(grid, repeat=5):
        after = np.maximum(TOKENS * inner, 0) * outer + TOKENS
        scores = -((query * after[:, None] - key * after[None, :]) ** 2) / 4  # σ² = 2
        weights = np.exp(scores)
        weights /= weights.sum(axis=1, keepdims=True)
        found.append(weights @ (value * after) + after)
    return np.array(found)


def packing(points: np.ndarray, separation: float) -> int:
    """How many points stay when each is farther than that from the others, token by token."""
    left, count = points, 0
    while len(left):
        left = left[np.abs(left - left[0]).max(axis=1) > separation]
        count += 1
    return count


def covering(network: "bounds.FullTransformer", resolution: float, sample: Sample) -> float:
    """log N as the package has it, head by head."""
    bound = bounds.FullTransformerCovering(network, "sharp", resolution=resolution)
    return bound.evaluate(sample).value


def _as_printed(network: "bounds.FullTransformer", resolution: float, sample: Sample) -> float:
    bound = bounds.FullTransformerCovering(network, form="printed", resolution=resolution)
    return bound.evaluate(sample).value


def run(context: Context, value: Covering = covering) -> Evidence:
    """The formula recomputed layer by layer, and packings of small networks, which are a floor.

    A packing is far below the bound, so only the recomputation sees a wrong factor: it follows the
    errors as the proof does, from Lemmas C.11 and C.13, whose own constants are attained.
    """
    rng = context.generator(CLAIM.id)
    errors = []
    for _ in range(200):
        network, radius = draw_network(rng, depth=3, decades=1.0), float(10.0 ** rng.uniform(-1, 1))
        found = value(network, 0.1, Sample(1, 1, input_norm=radius))
        size = by_hand.moved(network, radius, sharp=True)
        again = by_hand.n_parameters(network) * np.log1p(2 * size / 0.1)
        errors.append(abs(float(found / again) - 1))
    # One dimension, all norms 1: α̃ = 2, so the heads see R = 2; σ² = 2, so ρ̃ = 2 + 4·4/2 = 10 and
    # their error is 2·1 + 8·2·2/2 = 18; S = 10·2 + 18 = 38, and there are 5 parameters.
    one, sample = bounds.FullTransformer.uniform(1), Sample(1, 1)
    explicit = value(one, 0.1, sample) - 5 * np.log(1 + 2 * 38 / 0.1)
    measurements = [
        close("200 random networks: relative error of log N", max(errors), 1e-11),
        close("all norms 1: log N − 5·log(1 + 76/ε)", float(explicit), 1e-11),
    ]
    points, change = outputs(context.pick(quick=5, paper=9)), 0.0
    for resolution in RESOLUTIONS:
        values = [value(one, resolution, Sample(1, length)) for length in (1, 10**3, 10**9)]
        change = max(change, max(values) - min(values))
        found = float(np.log(packing(points, 2 * resolution)))
        measurements.append(at_most(f"log packing at 2ε, ε = {resolution:g}", found, values[0]))
    measurements.append(at_most("change of the bound from L = 1 to 10⁹", change, 0.0))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="E-lemma-C.8",
    title="the full Transformer is covered, whatever the length",
    statement="log N(F, ε) ≤ p·log(1 + 2R_T^trans R_T/ε) with p parameters, for every L.",
    paper="E",
    label="Lemma C.8",
    run=run,
    controls=(Control("the printed chain", partial(run, value=_as_printed)),),
)
