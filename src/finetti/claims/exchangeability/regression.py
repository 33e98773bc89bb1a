"""The Gaussian latent regression of (3.3) and its exact answer by brute force."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Regression:
    """r_ℓ = z c_ℓ + ϵ_ℓ with z_ij ∼ N(0, prior), ϵ ∼ N(0, noise), and a masked token's c."""

    keys: np.ndarray  # (L, d_c)
    values: np.ndarray  # (L, d_r)
    query: np.ndarray  # (d_c,)
    noise: float
    prior: float


def draw_regression(rng: np.random.Generator) -> Regression:
    """A world of one of three sizes (each compiles once) and random variances."""
    length, d_c, d_r = ((3, 1, 2), (12, 4, 3), (30, 6, 1))[rng.integers(3)]
    noise, prior = 10.0 ** rng.uniform(-1, 1, size=2)
    latent = np.sqrt(prior) * rng.normal(size=(d_r, d_c))
    keys = rng.normal(size=(length, d_c))
    values = keys @ latent.T + np.sqrt(noise) * rng.normal(size=(length, d_r))
    return Regression(keys, values, rng.normal(size=d_c), float(noise), float(prior))


def condition(world: Regression) -> tuple[np.ndarray, float]:
    """Mean and variance of a new r at the query, from the joint Gaussian of all r's (3.7)."""
    tokens = np.vstack([world.keys, world.query[None]])
    joint = world.prior * tokens @ tokens.T + world.noise * np.eye(len(tokens))
    seen, across = joint[:-1, :-1], joint[:-1, -1]
    gain = np.linalg.solve(seen, across)
    return world.values.T @ gain, float(joint[-1, -1] - across @ gain)
