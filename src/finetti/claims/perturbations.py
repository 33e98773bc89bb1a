"""Evidence for a perturbation lemma: many random draws, and instances that nearly attain it.

Random draws alone cannot see a constant that is wrong by a factor of two; tight instances can.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.claims.evidence import Measurement, at_most, within

DRAWS = 10_000
RATIO_RTOL = 1e-9
# A program that runs once is compiled for longer than it runs: without optimization.
RUN_ONCE: Any = {"xla_backend_optimization_level": 0}


def vmap_jit(function: Callable[..., Any], *draws: Any) -> Any:
    """Return ``function`` of every draw; draws are the first axis of each argument."""
    import jax
    import jax.numpy as jnp

    import finetti.attention.networks.activations  # noqa: F401 - inside vmap it could not look at σ

    arrays = jax.tree.map(jnp.asarray, draws)
    return jax.jit(jax.vmap(function), compiler_options=RUN_ONCE)(*arrays)


def ratio(lemma: Callable[..., Any], *instance: Any) -> float:
    """Return measured / bound of ``lemma`` on one instance, as one program.

    One by one its operations would each be compiled.
    """
    import equinox as eqx

    def of_instance(*arguments: Any) -> Any:
        return lemma(*arguments).ratio

    program: Any = eqx.filter_jit(of_instance, compiler_options=RUN_ONCE)  # pyright: ignore[reportCallIssue]
    return float(program(*instance))


def ratios(lemma: Callable[..., Any], *draws: Any) -> np.ndarray:
    """Return measured / bound of ``lemma`` on every draw."""
    return np.asarray(vmap_jit(lambda *draw: lemma(*draw).ratio, *draws))


def ratios_at_most_one(found: np.ndarray, what: str = "draws") -> Measurement:
    """Check that the largest of many ratios is at most 1."""
    return at_most(f"largest ratio on {found.size} random {what}", found.max(), 1 + RATIO_RTOL)


def is_tight(name: str, found: float) -> Measurement:
    """Check that the ratio of an instance that nearly attains the bound is in [0.98, 1]."""
    return within(f"tight instance: {name}", found, 0.98, 1 + RATIO_RTOL)


def log_uniform_scales(
    rng: np.random.Generator, low: float, high: float, *shape: int
) -> np.ndarray:
    """Return 10^uniform(low, high), with two axes of one appended to multiply matrices."""
    return 10.0 ** rng.uniform(low, high, size=(*shape, 1, 1))


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Divide every vector, on the last axis, by its length."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def unit_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw vectors of length 1, on the last axis."""
    return normalized(rng.normal(size=shape))


def perturbed_copies(rng: np.random.Generator, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return perturbed copies; each draw perturbs at least one array, by a relative size between
    1e-4 and 1."""
    count = len(arrays[0])
    moves = rng.integers(0, 2, size=(len(arrays), count))
    moves[rng.integers(0, len(arrays), size=count), np.arange(count)] = 1
    moved = []
    for array, move in zip(arrays, moves, strict=True):
        step = (move * 10.0 ** rng.uniform(-4, 0, size=count)).reshape(-1, *[1] * (array.ndim - 1))
        moved.append(array + step * np.abs(array).mean() * rng.normal(size=array.shape))
    return moved
