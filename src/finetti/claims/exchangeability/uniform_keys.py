"""Keys uniform on a sphere, where the limit of softmax attention is known in closed form."""

import numpy as np

from finetti import attention

DIMENSION = 5


def draw_unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Uniform points on S⁴."""
    tokens = rng.normal(size=(*shape, DIMENSION))
    return tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)


def read(
    rng: np.random.Generator, query: np.ndarray, harmonic: np.ndarray, length: int
) -> np.ndarray:
    """Softmax attention over L uniform keys with E[V|K=k] = (Mk, (aᵀk)² − 1/5), noise ±0.3."""
    keys = draw_unit(rng, length)
    values = np.hstack([keys @ harmonic.T, quadratic(keys)])
    values = values + 0.3 * rng.choice([-1.0, 1.0], size=values.shape)
    return np.asarray(attention.Softmax()(query, keys, values))


def quadratic(tokens: np.ndarray) -> np.ndarray:
    """The degree-2 harmonic k₁² − 1/d."""
    return tokens[..., :1] ** 2 - 1 / DIMENSION
