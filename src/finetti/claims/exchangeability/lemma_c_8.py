"""Lemma C.8: a small class of networks is covered."""

from itertools import product

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Evidence, at_most

TOKENS = np.array([0.6, -1.0, 0.9])
RESOLUTIONS = (0.02, 0.1, 0.5)


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


def run(context: Context) -> Evidence:
    """Log of a packing at 2ε of all layers on a grid, over the bound at ε; for three L."""
    points = outputs(context.pick(quick=5, paper=9))
    network = bounds.FullTransformer.uniform(1)
    measurements, covers = [], []
    for resolution in RESOLUTIONS:
        bound = bounds.TransformerCovering(network, "sharp", resolution=resolution)
        values = [bound.evaluate(Sample(1, length)).value for length in (1, 10**3, 10**9)]
        covers.append(max(values) - min(values))
        found = np.log(packing(points, 2 * resolution))
        measurements.append(
            at_most(f"log packing at 2ε, ε = {resolution:g}", float(found), values[0])
        )
    measurements.append(at_most("change of the bound from L = 1 to 10⁹", max(covers), 0.0))
    return Evidence(tuple(measurements))


CLAIM = Claim(
    id="E-lemma-C.8",
    title="the full Transformer is covered, whatever the length",
    statement="log N(F, ε) ≤ p·log(1 + 2R_T^trans R_T/ε) with p parameters, for every L.",
    paper="E",
    label="Lemma C.8",
    run=run,
)
