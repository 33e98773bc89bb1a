"""The kernels of infinitely many heads: closed forms against integrals, series and random heads."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from finetti.attention.random_features.infinite_heads import InfiniteHeadKernel
from finetti.attention.random_features.infinite_mlp import InfiniteMLPKernel
from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_feature_mlp import RandomFeatureMLP
from finetti.attention.random_features.rectified import (
    arc_cosine,
    bivariate_normal_cdf,
    rectified_product,
)

D, N, COUNT = 3, 4, 8  # one shape for most tests, so that each kernel compiles once
MEAN = np.random.default_rng(0).normal(size=(D + 1, D + 1)) / 2
KERNELS = {
    "rfa": InfiniteHeadKernel(D),
    "brfa": InfiniteHeadKernel(D, "identity"),
    "brfa-matrix": InfiniteHeadKernel(D, MEAN),
    "exponential": InfiniteHeadKernel(D, activation="exponential"),
    "exponential-matrix": InfiniteHeadKernel(D, MEAN, "exponential"),
    "network": InfiniteMLPKernel(D, N),
}
KINDS = ["rfa", "brfa-matrix", "exponential-matrix", "network"]  # what differs in arithmetic
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
kinds = pytest.mark.parametrize("kernel", [KERNELS[kind] for kind in KINDS], ids=KINDS)
EASY = [(0.4, -0.9, 0.3), (0.0, 0.0, -0.6), (1.5, 0.2, -0.8), (0.0, 0.7, 0.2), (-0.7, 0.0, 0.9)]
HARD = [
    (0.5, 0.5, 1.0),
    (0.5, 0.3, 1.0),
    (0.5, -0.4, -1.0),
    (0.0, 0.0, 1.0),
    (0.0, 0.0, -1.0),
    (1.0, 1 - 1e-9, 1 - 1e-12),
    (-0.3, 0.0, 1 - 1e-6),
    (1e-9, -1e-9, 0.5),
    (-3.0, -2.9, 0.9999),
    (4.0, -3.0, 0.0),
]


def unit(seed, *shape):
    tokens = np.random.default_rng(seed).normal(size=shape)
    return tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)


def inputs(seed, count, scale=1.0):
    return scale * unit(seed, count, D), scale * unit(seed + 1, count, N, D)


def integral(a, b, u):
    """E[σ(a + g) σ(b + g')] as one integral over g, the other done by hand, with 30 digits."""
    with mpmath.workdps(30):
        a, b, u = mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(u)
        r = mpmath.sqrt(1 - u * u)

        def inner(z):
            mean = b + u * z
            if r == 0:
                return max(mean, mpmath.mpf(0))
            return mean * mpmath.ncdf(mean / r) + r * mpmath.npdf(mean / r)

        kink, width = (-b / u, r / abs(u)) if u else (mpmath.mpf(0), mpmath.mpf(1))
        points = {kink + k * width for k in (-8, -1, 0, 1, 8)} | {mpmath.mpf(k) for k in (-2, 0, 3)}
        ends = [-a, *sorted(p for p in points if -a < p < 14), mpmath.mpf(14)]
        return float(mpmath.quad(lambda z: (a + z) * mpmath.npdf(z) * inner(z), ends))


@pytest.mark.parametrize("case", EASY + HARD)
def test_rectified_product_is_its_integral(case):
    np.testing.assert_allclose(
        rectified_product(*map(jnp.float64, case)), integral(*case), atol=1e-12
    )


@pytest.mark.parametrize("u", [-1.0, -0.999, -0.4, 0.0, 0.7, 1 - 1e-9, 1.0])
def test_arc_cosine_is_the_integral_and_the_product_without_means(u):
    np.testing.assert_allclose(arc_cosine(jnp.float64(u)), integral(0, 0, u), atol=1e-12)
    zero = jnp.float64(0)
    np.testing.assert_allclose(
        rectified_product(zero, zero, jnp.float64(u)), arc_cosine(jnp.float64(u)), atol=1e-14
    )


def hermite_coefficients(t, terms):
    """μ_l(t) of E[σ(t + g) σ(t' + g')] = Σ_l μ_l(t) μ_l(t') u^l, l < ``terms`` along the last axis.

    μ₀ = tΦ(t) + φ(t), μ₁ = Φ(t), μ_l = (−1)^l He_{l−2}(t) φ(t)/√l!
    """
    density, below = norm.pdf(t), norm.cdf(t)
    result = [t * below + density, below]
    before, hermite = np.zeros_like(t), np.ones_like(t)  # He_n/√n!, which does not overflow
    for order in range(2, terms):
        result.append((-1) ** order * hermite * density / np.sqrt(order * (order - 1)))
        n = order - 2
        before, hermite = hermite, (t * hermite - np.sqrt(n) * before) / np.sqrt(n + 1)
    return np.stack(result, axis=-1)


def test_rectified_product_is_its_hermite_series():
    t, other = np.random.default_rng(1).uniform(-2, 2, size=(2, 300))
    u = np.random.default_rng(2).uniform(-0.95, 0.95, size=300)

    def series(t, other):
        products = hermite_coefficients(t, 800) * hermite_coefficients(other, 800)
        return np.sum(products * u[:, None] ** np.arange(800), axis=1)

    found = rectified_product(*map(jnp.asarray, (t, other, u)))
    np.testing.assert_allclose(found, series(t, other), atol=1e-10)
    zero = np.zeros(300)
    np.testing.assert_allclose(arc_cosine(jnp.asarray(u)), series(zero, zero), atol=1e-10)


def test_normal_distribution_function_is_that_of_scipy():
    a, b = np.random.default_rng(3).normal(size=(2, 30)) * 1.5
    u = np.random.default_rng(4).uniform(-0.99, 0.99, size=30)
    expected = [
        multivariate_normal(cov=[[1, c], [c, 1]]).cdf([x, y])
        for x, y, c in zip(a, b, u, strict=True)
    ]
    np.testing.assert_allclose(
        bivariate_normal_cdf(*map(jnp.asarray, (a, b, u))), expected, atol=1e-10
    )
    zero, c = jnp.zeros(5), jnp.linspace(-1, 1, 5)
    np.testing.assert_allclose(
        bivariate_normal_cdf(zero, zero, c), 0.25 + np.arcsin(c) / (2 * np.pi), atol=1e-15
    )


@pytest.mark.parametrize("case", EASY)
def test_derivatives_are_those_of_differences(case):
    step = 1e-5
    for function in (rectified_product, bivariate_normal_cdf):
        gradient = jax.grad(function, (0, 1, 2))(*map(jnp.float64, case))
        for i in range(3):
            ends = [
                function(*(jnp.float64(x + (i == j) * h) for j, x in enumerate(case)))
                for h in (step, -step)
            ]
            np.testing.assert_allclose(gradient[i], (ends[0] - ends[1]) / (2 * step), atol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rounding_beyond_one_counts_as_one(dtype):
    above = jnp.asarray(1 + 4 * float(jnp.finfo(dtype).eps), dtype)
    a, one = jnp.asarray(0.3, dtype), jnp.asarray(1, dtype)
    assert arc_cosine(above) == 0.5
    assert jax.grad(arc_cosine)(above) == 0.5
    assert jax.grad(arc_cosine)(-above) == 0
    assert rectified_product(a, a, above) == rectified_product(a, a, one)
    gradient = jax.grad(rectified_product, (0, 1, 2))(a, a, above)
    assert jnp.isfinite(jnp.stack(gradient)).all()


def reference(kernel, query, keys, other_query, other_keys):
    """The double sum over keys, with integrals in place of closed forms; any norms."""
    x, y = np.append(query, 1), np.append(other_query, 1)
    mean = (
        np.zeros((D + 1, D + 1)) if kernel.mean_weights is None else np.asarray(kernel.mean_weights)
    )
    total = 0.0
    for key, other in itertools.product(keys, other_keys):
        k, j = np.append(key, 1), np.append(other, 1)
        covariance = (x @ y) * (k @ j) / 4
        s, t = (np.linalg.norm(p) * np.linalg.norm(q) / 2 for p, q in ((x, k), (y, j)))
        a, b = x @ mean @ k, y @ mean @ j
        if kernel.activation == "relu":
            product = s * t * integral(a / s, b / t, covariance / (s * t))
        else:
            # E exp(Z), Z normal with the mean and variance of the sum of both scores
            product = np.exp(a + b + (s * s + t * t + 2 * covariance) / 2)
        total += product * (k @ j)
    return total / (len(keys) * len(other_keys))


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "network"])
@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_kernel_is_the_double_sum_of_integrals(name, scale):
    (query, keys), (other, others) = inputs(5, 1, scale), inputs(7, 1)
    arguments = query[0], keys[0, :2], other[0], others[0, :3]
    np.testing.assert_allclose(
        KERNELS[name](*arguments), reference(KERNELS[name], *arguments), rtol=1e-10
    )


@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_network_kernel_is_its_integral(scale):
    (query, keys), (other, others) = inputs(9, 1, scale), inputs(11, 1)
    x, y = (np.concatenate([q[0], k[0].ravel(), [1]]) for q, k in ((query, keys), (other, others)))
    s, t = np.linalg.norm(x), np.linalg.norm(y)
    expected = s * t / (N + 2) * integral(0, 0, x @ y / (s * t))
    actual = KERNELS["network"](query[0], keys[0], other[0], others[0])
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


@kernels
def test_gram_is_the_loop_over_pairs_and_symmetric(kernel):
    (query, keys), (other, others) = inputs(13, COUNT), inputs(15, COUNT)
    pairs = [
        [kernel(q, k, o, p) for o, p in zip(other, others, strict=True)]
        for q, k in zip(query, keys, strict=True)
    ]
    np.testing.assert_allclose(kernel.gram(query, keys, other, others), pairs, rtol=1e-12)
    among = kernel.gram(query, keys)
    assert (among == among.T).all()
    np.testing.assert_allclose(among, kernel.gram(query, keys, query, keys), rtol=1e-12)


@kernels
def test_gram_is_positive_semidefinite(kernel):
    query, keys = inputs(17, COUNT)
    query[1], keys[1] = query[0], keys[0]  # a repeated input makes it singular
    spectrum = jnp.linalg.eigvalsh(kernel.gram(query, keys))
    assert spectrum.min() >= -1e-12 * spectrum.max()


@kinds
def test_gradients_are_finite_and_right_even_at_equal_inputs(kernel):
    query, keys = (jnp.asarray(array[0]) for array in inputs(19, 1))
    gradient = jax.jit(jax.grad(kernel, (0, 1)))(query, keys, query, keys)
    assert all(jnp.isfinite(part).all() for part in gradient)
    for i in range(2):
        # K is symmetric, so half of the change of K(x, x) comes from either side.
        direction = jnp.asarray(np.random.default_rng(21).normal(size=gradient[i].shape))
        moved = [
            (query + h * direction, keys) if i == 0 else (query, keys + h * direction)
            for h in (1e-6, -1e-6)
        ]
        slope = (kernel(*moved[0], *moved[0]) - kernel(*moved[1], *moved[1])) / 4e-6
        np.testing.assert_allclose(jnp.sum(gradient[i] * direction), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", KINDS[:-1])
def test_masking_a_key_is_deleting_it(name):
    kernel, (query, keys) = KERNELS[name], inputs(23, COUNT)
    mask = np.array([True, False, True, True])
    masks, dirty = np.tile(mask, (COUNT, 1)), np.where(mask[None, :, None], keys, np.nan)
    expected = kernel.gram(query, keys[:, mask])
    np.testing.assert_allclose(kernel.gram(query, dirty, mask=masks), expected, rtol=1e-12)
    masks[1] = False
    gram = kernel.gram(query, dirty, mask=masks)
    assert (gram[1] == 0).all()
    assert jnp.isfinite(gram).all()


def test_the_order_of_the_keys_matters_to_the_network_only():
    query, keys = inputs(25, COUNT)
    for name, kernel in KERNELS.items():
        change = kernel.gram(query, keys, query, keys[:, ::-1]) - kernel.gram(query, keys)
        assert (jnp.abs(change).max() > 1e-3) == (name == "network")


@kinds
def test_the_precision_is_that_of_the_tokens(kernel):
    query, keys = inputs(27, COUNT)
    exact = kernel.gram(query, keys)
    single = kernel.gram(query.astype(np.float32), keys.astype(np.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, rtol=2e-6 * float(jnp.abs(exact).max()), atol=2e-6)
    assert kernel(query[0].astype(np.float32), keys[0].astype(np.float32), query[1], keys[1]).dtype


@kinds
def test_jit_and_vmap(kernel):
    (query, keys), (other, others) = inputs(29, COUNT), inputs(31, COUNT)
    mapped = jax.jit(jax.vmap(lambda *pair: kernel(*pair)))(query, keys, other, others)
    expected = jnp.diagonal(kernel.gram(query, keys, other, others))
    np.testing.assert_allclose(mapped, expected, rtol=1e-12)


def models(name):
    """A random model of many heads, drawn for the kernel of this name."""
    key, heads = jax.random.key(33), 40_000
    if name == "network":
        return RandomFeatureMLP(key, heads, D, N)
    kernel = KERNELS[name]
    return RandomFeatureAttention(
        key, heads, D, mean_weights=kernel.mean_weights, activation=kernel.activation
    )


@pytest.mark.parametrize("scale", [1.0, 0.6])
@pytest.mark.parametrize("name", KERNELS)
def test_many_heads_approach_the_kernel(name, scale):
    module, (query, keys) = models(name), inputs(35, 2, scale)
    features = np.asarray(module.features(query, keys)).reshape(2, 40_000, -1)
    sample = 40_000 * np.sum(features[0] * features[1], axis=-1)
    exact = module.infinite_kernel().gram(query, keys)[0, 1]
    assert abs(sample.mean() - exact) <= 4 * sample.std() / 40_000**0.5


def test_mean_weights_of_a_kernel_can_be_trained():
    (query, keys), kernel = inputs(37, 3), KERNELS["brfa-matrix"]
    gradient = jax.grad(lambda kernel: jnp.sum(kernel.gram(query, keys)))(kernel)
    direction, step = np.random.default_rng(39).normal(size=(D + 1, D + 1)), 1e-5
    ends = [
        jnp.sum(InfiniteHeadKernel(D, MEAN + h * direction).gram(query, keys))
        for h in (step, -step)
    ]
    slope = jnp.sum(gradient.mean_weights * direction)
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-7)
