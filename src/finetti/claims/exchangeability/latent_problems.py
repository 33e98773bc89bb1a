"""Small worlds with finitely many latent values, where every term of Theorems 5.5 and 6.4 is exact.

A context X shows a posterior over the atoms of z; functions of X are posterior means of functions
of z, given by one row per atom.
"""

from dataclasses import dataclass

import numpy as np


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
