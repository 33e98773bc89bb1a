"""How many functions of a finite class are far apart: what any cover must at least cost."""

import math
from collections.abc import Iterable

import numpy as np

from finetti.claims.claim import Measurement, at_most


def log_packing(outputs: Iterable[np.ndarray], separation: float) -> float:
    """log of the number of functions, taken greedily, that differ by more than ``separation``.

    Two of them never lie in one ball of half that radius, so any cover has at least as many.

    Args:
        outputs: one array (points, k) per function.
        separation: 2ε, in the largest distance over the points.
    """
    kept = np.empty((0, 0, 0))
    for each in outputs:
        if kept.size == 0:
            kept = each[None]
        elif np.linalg.norm(kept - each, axis=-1).max(axis=-1).min() > separation:
            kept = np.concatenate([kept, each[None]])
    return math.log(len(kept))


def covered(name: str, packing: float, log_covering: float) -> Measurement:
    """The packing number at 2ε is at most the covering number at ε."""
    return at_most(f"{name}: log packing number / bound", packing / log_covering, 1.0)


def disk(count: int) -> np.ndarray:
    """A grid of points in the unit disk, shape (n, 2)."""
    axis = np.linspace(-1, 1, count)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    return points[np.linalg.norm(points, axis=1) <= 1]
