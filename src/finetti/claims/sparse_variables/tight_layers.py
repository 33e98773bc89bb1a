"""Layers at which paper S's perturbation lemmas are nearly equalities, and random ones."""

from typing import Any

import numpy as np

from finetti import attention
from finetti.attention import lipschitz
from finetti.claims.measures import log_uniform_scales

AXES = np.eye(3)
N_TOKENS, LAYER_DIMENSION, LAYER_WIDTH = 5, 4, 3
INWARD = (LAYER_DIMENSION, LAYER_WIDTH)
WEIGHT_SHAPES = (INWARD, INWARD, INWARD, INWARD[::-1])


def layer(scores: Any, values: Any = None, outputs: Any = None) -> Any:
    """A layer of tokens in R³ with M = ``scores`` and the identity elsewhere; σ = identity."""
    values = AXES if values is None else values
    outputs = AXES if outputs is None else outputs
    return attention.ProjectedLayer(scores, AXES, values, outputs, activation="identity")


def two_tokens(size: float = 1.0) -> np.ndarray:
    """±e₁, as long as ``size``: attention between them sees a change of M at first order."""
    return size * np.stack([AXES[0], -AXES[0]])


def first_axis(size: float) -> np.ndarray:
    """size · e₁e₁ᵀ."""
    return size * np.outer(AXES[0], AXES[0])


def score_derivative(size: float, step: float = 1e-4) -> float:
    """The derivative, at M = 0, of a head over ±size·e₁ with the query e₁ in the norm of M.

    Its scores are ±size·t and its values ±size: size²·t to first order.
    """
    still, moved = (
        attention.MultiHead.single(first_axis(each), AXES, AXES, AXES) for each in (0.0, step)
    )
    moved_by = lipschitz.head_perturbation(still, moved, two_tokens(size), AXES[0])
    return float(moved_by.measured) / step


def balanced(
    score_norm: float, step: float, copies: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M, Z and Ẑ: a query that reads n tokens e₁ and n tokens −e₁ evenly, until they move.

    Me₁ = qe₁, Me₂ = qe₃, Me₃ = qe₂, and the query e₂ moves by δe₁. A token ±e₁ moves by δ in the
    direction ±e₃, which changes its score.
    """
    e1, e2, e3 = AXES
    matrix = score_norm * (np.outer(e1, e1) + np.outer(e3, e2) + np.outer(e2, e3))
    signs = np.repeat([1.0, -1.0], copies)[:, None]
    tokens = np.vstack([signs * e1, e2])
    return matrix, tokens, tokens + step * np.vstack([signs * e3, e1])


def two_layers() -> tuple:
    """Two networks of two layers without scores that differ in W_C of the first, and what they
    read: the arguments of `lipschitz.network_perturbation`.

    W_V of the second is 5I, so that the difference is multiplied by 5 after it was made.
    """
    none = np.zeros((3, 3))
    second = layer(none, values=5 * AXES)
    networks = (
        attention.ProjectedTransformer([layer(none, outputs=size * AXES), second])
        for size in (1.0, 1.05)
    )
    readout = attention.TokenReadout(AXES[0])
    return *networks, readout, readout, 0.1 * np.tile(AXES[0], (3, 1))


def layer_tokens(rng: np.random.Generator, count: int, radius: float = 2.0) -> np.ndarray:
    """Sequences whose longest token has a length up to ``radius``."""
    draws = rng.normal(size=(count, N_TOKENS, LAYER_DIMENSION))
    longest = np.linalg.norm(draws, axis=2).max(axis=1)
    return draws / longest[:, None, None] * rng.uniform(0.05, radius, size=(count, 1, 1))


def layer_weights(rng: np.random.Generator, count: int, spread: float = 1.0) -> list[np.ndarray]:
    """W_Q, W_K, W_V, W_C with sizes over 2·``spread`` decades."""
    return [
        log_uniform_scales(rng, -spread, spread / 2, count) * rng.normal(size=(count, *s))
        for s in WEIGHT_SHAPES
    ]


def relu_layer(weights: Any) -> Any:
    """A layer with ReLU of W_Q, W_K, W_V, W_C."""
    return attention.ProjectedLayer(*weights, activation="relu")


def relu_network(layers: Any) -> Any:
    """Such layers, one after the other."""
    return attention.ProjectedTransformer([relu_layer(weights) for weights in layers])
