"""Float32 data: within 1e-4 of float64, gradients within 1e-3, or NaN with a word about it.

What used to be wrong without a word, and a small sweep of random contexts; the large one is
`benchmarks/accuracy.py`.
"""

import functools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, KernelSmoother, kernel_attention
from finetti.core.linalg import block_cg
from finetti.kernels import RBF, Linear

pytestmark = pytest.mark.rounding

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng


LENGTH = 300  # of most contexts here, which so share their programs


def single(*arrays):
    return [np.asarray(array, np.float32) for array in arrays]


@functools.cache
def read(route):
    return jax.jit(lambda ridge, *tokens: ConditionalMean(RBF(), ridge=ridge, route=route)(*tokens))


def is_right(route, keys, values, ridge, query=None):
    keys, values, query = single(keys, values, keys if query is None else query)
    found, exact = (read(name)(ridge, query, keys, values) for name in (route, "cholesky"))
    np.testing.assert_allclose(found, exact, atol=1e-4 * np.abs(values).max())


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 1e5])
def test_keys_of_any_spread(spread):
    keys = spread * RNG(0).normal(size=(LENGTH, 3))
    is_right("auto", keys, np.ones((LENGTH, 1)), 0.1)
    is_right("auto", keys + 1e4, np.ones((LENGTH, 1)), 0.1)


def test_keys_of_many_dimensions():
    keys, values = 10 * RNG(0).normal(size=(LENGTH, 64)), RNG(1).normal(size=(LENGTH, 2))
    is_right("auto", keys, values, 0.1)


@pytest.mark.parametrize("route", ["conjugate_gradients", "auto"])
def test_keys_in_clusters_far_apart(route):
    rng = RNG(0)
    keys = rng.normal(size=(1000, 3)) + 300.0 * rng.integers(0, 3, size=(1000, 1))
    is_right(route, keys, np.ones((1000, 1)), 0.1)


def test_many_keys_in_clusters_at_a_small_ridge():
    rng = RNG(0)
    centers = 3.0 * rng.normal(size=(20, 3))
    keys = 0.1 * rng.normal(size=(5000, 3)) + centers[rng.integers(0, 20, size=5000)]
    is_right("auto", keys, np.ones((5000, 1)), 1e-6, keys[:50])


def test_gradients_where_the_answer_needs_less():
    """The forward pass is good to 2e-5 in float32; the gradient of the values would be off by 1."""
    keys = RNG(0).normal(size=(800, 1)).astype(np.float32)
    values, weights = np.sin(keys), RNG(1).normal(size=(800, 1)).astype(np.float32)

    def gradients(route):
        def loss(module, query, keys, values):
            return jnp.sum(weights * module(query, keys, values))

        module = ConditionalMean(RBF(0.7), ridge=1e-4, route=route)
        return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(module, keys, keys, values)

    with jax.enable_x64(False):
        found, exact = gradients("auto"), gradients("cholesky")
    for one, other in zip(*map(jax.tree.leaves, (found, exact)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3 * np.abs(other).max())


@pytest.fixture
def impatient(monkeypatch, recompiled):
    """Conjugate gradients that give up after two iterations."""
    monkeypatch.setattr(block_cg, "MAX_ITERATIONS", 2)


def test_what_did_not_converge_is_no_answer(impatient):
    rng = RNG(0)
    # Context 1 has one key that counts: two iterations are enough there.
    keys, values = single(rng.normal(size=(2, 60, 1)), rng.normal(size=(2, 60, 2)))
    mask = np.stack([np.ones(60, bool), np.arange(60) == 3])
    options = {"ridge": 1e-7, "route": "conjugate_gradients"}
    with pytest.warns(UserWarning, match="found no solution for some queries"):
        mean = ConditionalMean(RBF(), **options)(keys, keys, values, mask)
    exact = ConditionalMean(RBF(), ridge=1e-7, route="cholesky")(keys, keys, values, mask)
    missing = np.isnan(mean)
    assert missing[0].any()
    assert not missing[1].any()
    np.testing.assert_allclose(mean[~missing], exact[~missing], atol=1e-4)
    gradient = jax.jit(
        jax.grad(lambda values: ConditionalMean(RBF(), **options)(keys[0], keys[0], values).sum())
    )(values[0])
    assert np.isnan(gradient).any()


def test_without_an_answer_there_is_no_gradient():
    """Inner products of 10⁹: rounding, also in float64, is beyond what is called a solution."""
    keys = np.float32([45317.58, -18012.27, -64303.74]) + RNG(0).choice([0.0, 4e-3], size=(9, 3))
    keys, values = single(keys, RNG(1).normal(size=(9, 2)))
    module = ConditionalMean(RBF() + Linear(), ridge=0.6, route="conjugate_gradients")

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def attend(values):
        mean = module(keys, keys, values)
        return mean.sum(), mean

    (_, mean), gradient = attend(values)
    assert np.isnan(mean).all()
    assert np.isnan(gradient).all()


def test_conjugate_gradients_at_small_ridges():
    keys, query = RNG(0).normal(size=(2, LENGTH, 3))
    for ridge in (1e-3, 1e-5, 1e-7):
        is_right("conjugate_gradients", keys, np.sin(keys[:, :1]), ridge, query)


@pytest.mark.parametrize("attend", ["smoother", "functional"])
def test_kernel_attention_far_from_the_origin(attend):
    rng = RNG(0)
    query, keys, values = single(
        1000 + rng.normal(size=(40, 2)), 1000 + rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
    )
    mask = np.arange(300) >= 30

    def attention(query, keys, values, mask):
        if attend == "smoother":
            return KernelSmoother(RBF())(query, keys, values, mask)
        heads = (array[:, None, :] for array in (query, keys, values))
        return kernel_attention(*heads, mask=mask[None, None, :], scale=1.0)[:, 0]

    def is_right(query, keys):
        with jax.enable_x64(False):
            found = attention(query, keys, values, mask)
        logs = -0.5 * np.sum((query[:, None].astype(float) - keys[mask]) ** 2, axis=2)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        exact = weights @ values[mask] / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, exact, atol=1e-5)

    is_right(query, keys)  # padding is not a key at the origin
    far_key, far_query = keys.copy(), query.copy()
    far_key[40], far_query[3] = 1e4, 1e7
    is_right(query, far_key)
    is_right(far_query, keys)


def test_a_sweep_of_random_contexts():
    """As users' programs are compiled (these tests compile with other flags)."""
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "accuracy.py"),
        *("--cases", "15", "--lengths", "6", "260", "--dimensions", "3"),
        *("--kernels", "RBF", "Matern 5/2", "--seed", "1"),
    ]
    quick = (
        "--xla_backend_optimization_level",
        "--xla_cpu_use_fusion_emitters",
        "--xla_cpu_parallel_codegen_split_count",
    )
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if not flag.startswith(quick)]
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 outside the limits" in run.stdout


def test_no_warning_where_there_is_an_answer():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConditionalMean(RBF(), ridge=1e-9)(
            *single(np.ones((1, 2)), np.ones((9, 2)), np.ones(9)[:, None])
        )
