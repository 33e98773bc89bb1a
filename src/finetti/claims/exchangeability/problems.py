"""Problems with known answers: latent worlds, regression, keys on the sphere.

In a small world with finitely many latent values every term of Theorems 5.5 and 6.4 is exact: a
context X shows a posterior over the atoms of z; functions of X are posterior means of functions of
z, given by one row per atom.
"""

from dataclasses import dataclass

import numpy as np

from finetti import attention
from finetti.claims.perturbations import unit_vectors


@dataclass(frozen=True)
class World:
    """Posteriors p(z|X), one row per context, and how likely each context is."""

    posteriors: np.ndarray  # (contexts, atoms)
    mass: np.ndarray  # (contexts,)

    def mean(self, function: np.ndarray) -> np.ndarray:
        """E[g(z)|X] of a function with one row per atom."""
        return self.posteriors @ function

    def squared(self, error: np.ndarray) -> float:
        """E‖error(X)‖²."""
        return float(self.mass @ np.sum(error**2, axis=1))


def draw_world(rng: np.random.Generator, contexts: int = 30, atoms: int = 6) -> World:
    """Posteriors from nearly flat to nearly certain."""
    spread = 10.0 ** rng.uniform(-1.5, 1)
    posteriors = rng.dirichlet(np.full(atoms, spread), size=contexts)
    return World(posteriors, rng.dirichlet(np.ones(contexts)))


def revealed() -> World:
    """Two atoms that X tells apart, equally likely: averages over the posterior lose nothing."""
    return World(np.eye(2), np.array([0.5, 0.5]))


def largest_squares(residual: np.ndarray) -> float:
    """Σ_i ‖g_i‖²_∞ over the coordinates i: ε² of Assumptions 5.4 and 6.1."""
    return float(np.sum(np.max(np.abs(residual), axis=0) ** 2))


def uniform_error(error: np.ndarray) -> float:
    """sup_X ‖error(X)‖."""
    return float(np.linalg.norm(error, axis=1).max())


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


SPHERE_DIMENSION = 5


def read_sphere(
    rng: np.random.Generator, query: np.ndarray, harmonic: np.ndarray, length: int
) -> np.ndarray:
    """Softmax attention over L uniform keys with E[V|K=k] = (Mk, (aᵀk)² − 1/5), noise ±0.3."""
    keys = unit_vectors(rng, length, SPHERE_DIMENSION)
    values = np.hstack([keys @ harmonic.T, quadratic(keys)])
    values = values + 0.3 * rng.choice([-1.0, 1.0], size=values.shape)
    return np.asarray(attention.Softmax()(query, keys, values))


def quadratic(tokens: np.ndarray) -> np.ndarray:
    """The degree-2 harmonic k₁² − 1/d."""
    return tokens[..., :1] ** 2 - 1 / SPHERE_DIMENSION
