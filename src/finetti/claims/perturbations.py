"""Evidence for a perturbation lemma: many random draws, and instances that nearly attain it.

Random draws alone cannot see a constant that is wrong by a factor of two; tight instances can.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti.claims.evidence import Evidence, Measurement, at_most, within

DRAWS = 10_000
RATIO_RTOL = 1e-9


def mapped(function: Callable[..., Any], *draws: Any) -> Any:
    """``function`` of every draw, the first axis of each argument."""
    import jax
    import jax.numpy as jnp

    arrays = jax.tree.map(jnp.asarray, draws)
    # A module that is imported inside vmap cannot look at a ReLU, so let it be imported before.
    jax.eval_shape(function, *jax.tree.map(lambda array: array[0], arrays))
    return jax.jit(jax.vmap(function))(*arrays)


def ratios(lemma: Callable[..., Any], *draws: Any) -> np.ndarray:
    """measured / bound of ``lemma`` on every draw."""
    return np.asarray(mapped(lambda *draw: lemma(*draw).ratio, *draws))


def holds(found: np.ndarray, what: str = "draws") -> Measurement:
    """The largest of many ratios is at most 1."""
    return at_most(f"largest ratio on {found.size} random {what}", found.max(), 1 + RATIO_RTOL)


def attained(name: str, lemma: Any) -> Measurement:
    """The ratio of an instance that nearly attains the bound is in [0.98, 1]."""
    return within(f"tight instance: {name}", lemma.ratio, 0.98, 1 + RATIO_RTOL)


def sizes(rng: np.random.Generator, low: float, high: float, *shape: int) -> np.ndarray:
    """10^uniform(low, high), with two axes of one appended to multiply matrices."""
    return 10.0 ** rng.uniform(low, high, size=(*shape, 1, 1))


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Every vector, on the last axis, divided by its length."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def unit_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random vectors of length 1, on the last axis."""
    return normalized(rng.normal(size=shape))


def nearby(rng: np.random.Generator, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The same arrays moved: in each draw one of them or more, by very little up to a lot."""
    count = len(arrays[0])
    moves = rng.integers(0, 2, size=(len(arrays), count))
    moves[rng.integers(0, len(arrays), size=count), np.arange(count)] = 1
    moved = []
    for array, move in zip(arrays, moves, strict=True):
        step = (move * 10.0 ** rng.uniform(-4, 0, size=count)).reshape(-1, *[1] * (array.ndim - 1))
        moved.append(array + step * np.abs(array).mean() * rng.normal(size=array.shape))
    return moved


def evidence(tight: dict[str, Any], found: np.ndarray | None = None, note: str = "") -> Evidence:
    """`attained` for every tight instance, after `holds` for many draws."""
    instances = [attained(name, lemma) for name, lemma in tight.items()]
    if found is None:
        return Evidence(*instances)
    median = f"The median ratio of the random draws is {np.median(found):.2g}."
    return Evidence(holds(found), *instances, note=f"{median} {note}".rstrip())
