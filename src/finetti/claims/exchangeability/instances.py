"""Heads at which paper E's perturbation lemmas are nearly equalities, random ones, and kernels."""

from typing import Any

import numpy as np

from finetti import attention, kernels
from finetti.claims.perturbations import sizes

DIMENSION = 4
AXES = np.eye(DIMENSION)
FIRST = np.outer(AXES[0], AXES[0])  # e₁e₁ᵀ
N_HEADS, TOKENS, WIDTH = 2, 5, 2


def squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """‖x − y‖² of all rows."""
    return np.sum((x[..., :, None, :] - y[..., None, :, :]) ** 2, axis=-1)


def rbf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """exp(−‖x − y‖²/2) of all rows, in plain NumPy."""
    return np.exp(-squared(x, y) / 2)


def attentions(ridge: float) -> dict[str, Any]:
    """One member of each family of attention, by name."""
    return {
        "softmax": attention.Softmax(),
        "RBF smoother": attention.KernelSmoother(kernels.RBF()),
        "conditional mean": attention.ConditionalMean(kernels.RBF(), ridge=ridge),
    }


def larger_c1(right: Any) -> Any:
    """Constants of the sphere whose C₁ is 1 % too large."""
    return lambda dimension: right(dimension)._replace(c1=1.01 * right(dimension).c1)


def heads(query: Any, key: Any, value: Any) -> Any:
    """Heads with RBF-form softmax attention, σ² = 2√d_p."""
    return attention.MultiHead(query, key, value, attention=attention.rbf_attention(key.shape[-1]))


def even_reader(
    value_norm: float, step: float, copies: int = 40, *, moved: str = "keys"
) -> tuple[Any, Any, np.ndarray]:
    """W, Ŵ and X: a query e₂ reads n tokens e₁ and n tokens −e₁ evenly, until W_k leaves 0.

    The same with W_q, where the ``moved`` are "queries".
    """
    query, key = np.outer(AXES[1], AXES[0])[None], FIRST[None]
    value = value_norm * AXES[None]
    pair = (
        heads(query, size * key, value) if moved == "keys" else heads(size * query, key, value)
        for size in (0.0, step)
    )
    signs = np.repeat([1.0, -1.0], copies)[:, None]
    return *pair, np.vstack([signs * AXES[0], AXES[1]])


def twice(one: Any) -> Any:
    """The same head two times."""
    weights = (one.query_weights, one.key_weights, one.value_weights)
    return heads(*(np.repeat(np.asarray(each), 2, axis=0) for each in weights))


def weights(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """W_q, W_k, W_v of two heads, with sizes over two decades."""
    shapes = (WIDTH, WIDTH, DIMENSION)
    return [
        sizes(rng, -1.5, 0.5, count, 1) * rng.normal(size=(count, N_HEADS, DIMENSION, width))
        for width in shapes
    ]


def tokens(rng: np.random.Generator, count: int) -> np.ndarray:
    """Sequences of tokens, short and long."""
    return sizes(rng, -1, 0.5, count) * rng.normal(size=(count, TOKENS, DIMENSION))
