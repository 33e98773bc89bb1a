"""One small context that most tests read: the same shapes, so that they share compilations."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import context_batch
from finetti.attention.cme import mixed_precision


class Context(NamedTuple):
    query: jnp.ndarray  # (4, 3)
    keys: jnp.ndarray  # (6, 3)
    values: jnp.ndarray  # (6, 2)


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return Context(*(jnp.asarray(rng.normal(size=size)) for size in ((4, 3), (6, 3), (6, 2))))


@pytest.fixture
def context():
    return draw()


@pytest.fixture
def recompiled(monkeypatch):
    """Attention compiles anew, with what a test patches; what was compiled before is kept."""
    fresh = functools.cache(context_batch._program.__wrapped__)
    monkeypatch.setattr(context_batch, "_program", fresh)
    mean64 = jax.jit(lambda solver, *arguments: solver.mean64(*arguments), static_argnums=0)
    monkeypatch.setattr(mixed_precision, "_mean64", mean64)
