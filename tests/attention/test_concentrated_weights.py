"""Local linear attention where its weights concentrate: right by high precision, never huge."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from finetti.attention import LocalLinear, local_linear_attention
from finetti.kernels import RBF, Exponential, Matern, Polynomial

pytestmark = pytest.mark.rounding

RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (RNG.normal(size=size) for size in ((3, 4), (6, 4), (6, 2)))
# All keys, none, and two of them.
MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]], bool)
CAUSAL = np.tril(np.ones((3, 6), bool))


def exponential(dot, square):
    return dot


def rbf(dot, square):
    return -square / (2 * mp.mpf(0.9) ** 2)


def matern(dot, square):
    distance = mp.sqrt(3 * square) / mp.mpf(0.9)
    return mp.log(1 + distance) - distance


def polynomial(dot, square):
    return mp.log((dot + 1) ** 2)


KERNELS = {
    "exponential": (Exponential, exponential),
    "rbf": (lambda: RBF(0.9), rbf),
    "matern": (lambda: Matern(1.5, 0.9), matern),
    "polynomial": (lambda: Polynomial(2), polynomial),
}


def exact_line(log_kernel, query, keys, values, scale, ridge):
    """The answer at one query by 50 digits, with √scale·query and √scale·keys."""
    with mp.workdps(50):
        root = mp.sqrt(mp.mpf(scale))
        query = root * mp.matrix(query.tolist())
        keys = [root * mp.matrix(key.tolist()) for key in keys]
        logs = [
            log_kernel((query.T * key)[0], ((query - key).T * (query - key))[0]) for key in keys
        ]
        scores = [mp.exp(each - max(logs)) for each in logs]
        shares = [each / mp.fsum(scores) for each in scores]
        mean = sum((p * key for p, key in zip(shares, keys, strict=True)), mp.zeros(len(query), 1))
        offsets = [key - mean for key in keys]
        matrix = mp.mpf(ridge) * mp.eye(len(query))
        for p, offset in zip(shares, offsets, strict=True):
            matrix += p * offset * offset.T
        slope = mp.lu_solve(matrix, query - mean)
        weights = [
            p * (1 + (offset.T * slope)[0]) for p, offset in zip(shares, offsets, strict=True)
        ]
        columns = values.T.tolist()
        return [float(mp.fdot(weights, [mp.mpf(v) for v in column])) for column in columns]


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        *((name, "float64", 1e-10) for name in KERNELS),
        ("exponential", "float32", 1e-6),
        ("exponential", "bfloat16", 2.0**-7),
    ],
)
def test_answers_are_right_however_long_the_tokens_are(name, dtype, tolerance):
    make_kernel, log_kernel = KERNELS[name]
    with jax.enable_x64(dtype == "float64"):  # kernels are made in the precision around them
        for amplitude, scale in ((0.1, 0.5), (3.0, 2.0), (10.0, 0.5), (100.0, 2.0)):
            given = [jnp.asarray(array, dtype) for array in (amplitude * QUERY, amplitude * KEYS)]
            given.append(jnp.asarray(VALUES, dtype))
            layout = [array[None, :, None] for array in given]
            out = local_linear_attention(*layout, kernel=make_kernel(), mask=MASK, scale=scale)
            found = np.asarray(out, np.float64)[0, :, 0]
            query, keys, values = (np.asarray(array, np.float64) for array in given)
            expected = [
                exact_line(log_kernel, q, keys[kept], values[kept], scale, 0.1)
                if kept.any()
                else values.mean(axis=0)
                for q, kept in zip(query, MASK, strict=True)
            ]
            assert np.abs(expected).max() < 10
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_a_small_ridge_does_not_magnify_rounding():
    """Where one key has all of the weight, its offset from the mean is 0, not a rounding error."""
    query, keys = 100 * QUERY, 100 * KEYS
    found = LocalLinear(Exponential(), 1e-9)(query, keys, VALUES)
    nearest = np.argmax(query @ keys.T, axis=1)
    np.testing.assert_allclose(found, VALUES[nearest], rtol=0, atol=1e-6)


def test_each_prefix_tends_to_the_value_of_the_key_it_reads():
    module = LocalLinear(Exponential())
    query, keys = 100 * QUERY, 100 * KEYS
    best = np.argmax(np.where(CAUSAL, query @ keys.T, -np.inf), axis=1)
    found = module(query, keys, VALUES, is_causal=True)
    np.testing.assert_allclose(found, VALUES[best], rtol=0, atol=1e-9)
    gradients = jax.grad(lambda *pairs: jnp.sum(module(*pairs, is_causal=True)), (0, 1, 2))(
        query, keys, VALUES
    )
    assert all(jnp.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_allclose(gradients[2][:, 0], np.bincount(best, minlength=6), atol=1e-9)


def test_a_factor_of_the_kernel_changes_nothing():
    found = [LocalLinear(c * RBF(0.9), 0.3)(QUERY, KEYS, VALUES) for c in (1.0, 1e-9)]
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-12)
