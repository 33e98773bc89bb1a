"""The conditional kernel density (4.11), and its mean: Proposition 4.2."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import KernelSmoother, Softmax
from finetti.core import sphere_constants, sphere_rule
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential

close = partial(np.testing.assert_allclose, rtol=0)


def on_sphere(*shape, seed):
    array = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(array / np.linalg.norm(array, axis=-1, keepdims=True))


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_mean_of_the_density_is_softmax_attention(dimension):
    query, keys = on_sphere(4, 3, seed=0), on_sphere(6, 3, seed=1)
    values = on_sphere(6, dimension, seed=2)
    points, weights = sphere_rule(dimension, 30)
    density = KernelSmoother(Exponential()).density(points, query, keys, values)
    c0, c1 = sphere_constants(dimension)
    attention = Softmax()(query, keys, values)
    close(density @ weights, jnp.full(4, c0), atol=1e-10)
    integral = (density * weights[None, :]) @ points
    close(integral, c1 * attention, atol=1e-10)
    # Normalized to a density, the constant is C_0/C_1 (erratum 4), and not the printed 1/(C_0 C_1).
    close(c0 / c1 * (integral / c0), attention, atol=1e-10)
    assert np.abs(integral / (c0 * c1) - attention).max() > 1e-2


def test_density_is_its_formula(context):
    query, keys, values = context
    points = values[:3] + 0.1
    smoother, value_kernel = KernelSmoother(RBF(0.8)), RBF(0.5)
    scores, bumps = smoother.kernel.gram(query, keys), value_kernel.gram(values, points)
    expected = (scores @ bumps) / jnp.sum(scores, axis=1, keepdims=True)
    density = smoother.density(points, *context, value_kernel=value_kernel)
    close(density, expected, atol=1e-13)


def test_density_skips_masked_keys(context):
    query, keys, values = context
    mask = jnp.array([True, False, True, True, False, True])
    smoother, points = KernelSmoother(RBF()), values[:3]
    dirty = jnp.where(mask[:, None], values, jnp.nan)
    deleted = smoother.density(points, query, keys[mask], values[mask])
    close(smoother.density(points, query, keys, dirty, mask), deleted, atol=1e-14)


def test_bad_points_are_named(context):
    smoother = KernelSmoother(RBF())
    for points in (jnp.zeros((3, 5)), jnp.zeros(2), jnp.full((3, 2), jnp.nan)):
        with pytest.raises(InputError, match="`points` argument of KernelSmoother"):
            smoother.density(points, *context)
