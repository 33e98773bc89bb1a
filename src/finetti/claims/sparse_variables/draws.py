"""Random layers and tokens for paper S's lemmas: many shapes, many sizes."""

from typing import Any

import numpy as np

from finetti import attention
from finetti.claims.perturbations import sizes

N_TOKENS, LAYER_DIMENSION, LAYER_WIDTH = 5, 4, 3
INWARD = (LAYER_DIMENSION, LAYER_WIDTH)
WEIGHT_SHAPES = (INWARD, INWARD, INWARD, INWARD[::-1])


def layer_tokens(rng: np.random.Generator, count: int, radius: float = 2.0) -> np.ndarray:
    """Sequences whose longest token has a length up to ``radius``."""
    draws = rng.normal(size=(count, N_TOKENS, LAYER_DIMENSION))
    longest = np.linalg.norm(draws, axis=2).max(axis=1)
    return draws / longest[:, None, None] * rng.uniform(0.05, radius, size=(count, 1, 1))


def layer_weights(rng: np.random.Generator, count: int, spread: float = 1.0) -> list[np.ndarray]:
    """W_Q, W_K, W_V, W_C with sizes over 2·``spread`` decades."""
    return [
        sizes(rng, -spread, spread / 2, count) * rng.normal(size=(count, *s)) for s in WEIGHT_SHAPES
    ]


def build_layer(*weights: Any) -> Any:
    """A layer with ReLU."""
    return attention.ProjectedLayer(*weights, activation="relu")
