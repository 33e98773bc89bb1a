"""Smallest functions through points: no function with these values has a smaller norm."""

from typing import Any

import numpy as np

from finetti.claims.random_features.support import draw_unit


def interpolant_norm(kernel: Any, query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> float:
    """yᵀ(K + ηI)⁻¹y, which is at most the squared norm of any function with the values y.

    η = 10⁻¹⁰ of K's mean keeps the solution stable, and only makes it smaller.
    """
    gram = np.asarray(kernel.gram(query, keys))
    ridge = 1e-10 * np.trace(gram) / len(gram)
    return float(values @ np.linalg.solve(gram + ridge * np.eye(len(gram)), values))


def draw_contexts(
    rng: np.random.Generator, count: int, length: int, dimension: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and a direction b, all on the unit sphere."""
    query = draw_unit(rng, count, dimension=dimension)
    keys = draw_unit(rng, count, length, dimension=dimension)
    return query, keys, draw_unit(rng, dimension=dimension)
