"""Softmax, Nadaraya–Watson with the exponential kernel, and JAX's own attention are one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import KernelSmoother, Softmax
from finetti.kernels import RBF, Exponential, Polynomial

pytestmark = pytest.mark.rounding

close = partial(np.testing.assert_allclose, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 3**-0.5, 7.0])
def test_softmax_is_the_exponential_smoother_and_jax(scale, context):
    query, keys, values = context
    softmax = Softmax(scale)(*context)
    close(KernelSmoother(Exponential(scale))(*context), softmax, atol=1e-12)
    arrays = query, keys, jnp.pad(values, ((0, 0), (0, 1)))  # JAX wants equal widths
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        jax_own = jax.nn.dot_product_attention(*(array[:, None] for array in arrays), scale=scale)
    # JAX rounds its scores to float32 even in float64: |scale q·k|·2⁻²⁴ on each.
    largest = float(jnp.abs(scale * query @ keys.T).max())
    close(softmax, jax_own[:, 0, :2], atol=8 * largest * 2**-24)


def test_softmax_is_its_formula(context):
    query, keys, values = (np.asarray(array) for array in context)
    scores = np.exp(query @ keys.T)
    weights = scores / scores.sum(axis=1, keepdims=True)
    close(Softmax()(*context), weights @ values, atol=1e-14)
    close(Softmax().weights(*context[:2]), weights, atol=1e-15)


def test_smoother_is_its_formula(context):
    query, keys, values = context
    for kernel in (RBF(0.8), Polynomial(2, bias=0.3)):
        scores = jnp.array([[kernel(q, k) for k in keys] for q in query])
        expected = (scores @ values) / scores.sum(axis=1, keepdims=True)
        close(KernelSmoother(kernel)(*context), expected, atol=1e-13)


def on_sphere(array):
    return array / jnp.linalg.norm(array, axis=-1, keepdims=True)


def test_exponential_and_rbf_agree_on_the_unit_sphere_only(context):
    query, keys, values = context
    sphere = on_sphere(query), on_sphere(keys), values
    for scale in (1.0, 4.0):  # exp(s q·k) = e^s exp(−‖q−k‖²/(2/s))
        exponential = KernelSmoother(Exponential(scale))
        rbf = KernelSmoother(RBF(scale**-0.5))
        close(exponential(*sphere), rbf(*sphere), atol=1e-12)
        assert jnp.abs(exponential(*context) - rbf(*context)).max() > 1e-2


def test_a_smoother_whose_kernel_underflows_reads_the_nearest_key(context):
    """All K(k, q) are 0 in float64; their logarithms are not."""
    query, keys, values = context
    far = query + 1e4
    nearest = jnp.argmin(jnp.sum((far[:, None] - keys[None]) ** 2, axis=-1), axis=1)
    close(KernelSmoother(RBF(0.1))(far, keys, values), values[nearest])
