"""What every kernel promises, member by member."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from finetti.core.errors import InputError, UnsupportedError
from finetti.core.numerics.float64 import float64_inside
from finetti.kernels import (
    RBF,
    Constant,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    White,
)

ARD = np.array([0.6, 1.0, 1.9])


class OnlyGram(Kernel):
    """A kernel of a user: nothing but a formula."""

    width: jax.Array

    def _gram(self, xs, ys):
        return jnp.cos((xs[:, None, 0] - ys[None, :, 0]) / self.width.astype(xs.dtype))


MEMBERS = {
    "rbf": RBF(0.7),
    "rbf-ard": RBF(ARD),
    "exponential": Exponential(0.6),
    "linear": Linear(),
    "polynomial-3": Polynomial(3, scale=0.5, bias=0.8),
    "polynomial-2": Polynomial(2, scale=1.3),
    "polynomial-2-homogeneous": Polynomial(2, bias=0.0),
    "matern-1/2": Matern(0.5, 1.3),
    "matern-3/2": Matern(1.5, 0.8),
    "matern-5/2": Matern(2.5, ARD),
    "matern-0.8": Matern(0.8, 1.1),
    "matern-9/2": Matern(4.5),
    "rational-quadratic": RationalQuadratic(0.7, ARD),
    "periodic": Periodic(1.9, ARD),
    "constant": Constant(0.6),
    "only-gram": OnlyGram(jnp.asarray(0.8)),
    "scaled": 2.5 * RBF(0.9),
    "sum-with-noise": RBF(0.8) + 0.5 * White(0.4),
    "sum": RBF(1.2) + Linear(),
    "sum-growing": RBF(0.8) + Exponential(0.5),
    "sum-finite": Linear() + 0.3 * Polynomial(2),
    "product": Exponential(0.4) * RBF(1.1),
    "product-growing": Exponential(0.4) * (0.5 * Exponential(0.3)),
    "product-finite": Linear() * Polynomial(2, bias=0.0),
    "nested": (Matern(2.5) + 2.0 * Exponential(0.3)) * RBF(1.7),
}


def rbf(x, y, lengthscale):
    return np.exp(-np.sum(((x - y) / lengthscale) ** 2) / 2)


def exponential(x, y, scale):
    return np.exp(scale * np.dot(x, y))


def polynomial(x, y, degree, scale=1.0, bias=1.0):
    return (scale * np.dot(x, y) + bias) ** degree


def matern(x, y, nu, lengthscale):
    t = np.sqrt(2 * nu) * np.linalg.norm((x - y) / lengthscale)
    return 2 ** (1 - nu) / special.gamma(nu) * t**nu * special.kv(nu, t) if t else 1.0


def rational_quadratic(x, y, alpha, lengthscale):
    return (1 + np.sum(((x - y) / lengthscale) ** 2) / (2 * alpha)) ** -alpha


def periodic(x, y, period, lengthscale):
    return np.exp(-2 * np.sum((np.sin(np.pi * (x - y) / period) / lengthscale) ** 2))


# The same kernels by their formulas, pair by pair, in NumPy and SciPy.
FORMULAS = {
    "rbf": lambda x, y: rbf(x, y, 0.7),
    "rbf-ard": lambda x, y: rbf(x, y, ARD),
    "exponential": lambda x, y: exponential(x, y, 0.6),
    "linear": np.dot,
    "polynomial-3": lambda x, y: polynomial(x, y, 3, 0.5, 0.8),
    "polynomial-2": lambda x, y: polynomial(x, y, 2, 1.3),
    "polynomial-2-homogeneous": lambda x, y: polynomial(x, y, 2, bias=0.0),
    "matern-1/2": lambda x, y: matern(x, y, 0.5, 1.3),
    "matern-3/2": lambda x, y: matern(x, y, 1.5, 0.8),
    "matern-5/2": lambda x, y: matern(x, y, 2.5, ARD),
    "matern-0.8": lambda x, y: matern(x, y, 0.8, 1.1),
    "matern-9/2": lambda x, y: matern(x, y, 4.5, 1.0),
    "rational-quadratic": lambda x, y: rational_quadratic(x, y, 0.7, ARD),
    "periodic": lambda x, y: periodic(x, y, 1.9, ARD),
    "constant": lambda x, y: 0.6,
    "only-gram": lambda x, y: np.cos((x[0] - y[0]) / 0.8),
    "scaled": lambda x, y: 2.5 * rbf(x, y, 0.9),
    "sum-with-noise": lambda x, y: rbf(x, y, 0.8) + 0.2 * (x is y),
    "sum": lambda x, y: rbf(x, y, 1.2) + np.dot(x, y),
    "sum-growing": lambda x, y: rbf(x, y, 0.8) + exponential(x, y, 0.5),
    "sum-finite": lambda x, y: np.dot(x, y) + 0.3 * polynomial(x, y, 2),
    "product": lambda x, y: exponential(x, y, 0.4) * rbf(x, y, 1.1),
    "product-growing": lambda x, y: exponential(x, y, 0.4) * 0.5 * exponential(x, y, 0.3),
    "product-finite": lambda x, y: np.dot(x, y) * polynomial(x, y, 2, bias=0.0),
    "nested": lambda x, y: (matern(x, y, 2.5, 1.0) + 2.0 * exponential(x, y, 0.3)) * rbf(x, y, 1.7),
}
POSITIVE = [name for name, kernel in MEMBERS.items() if kernel.is_positive]
FINITE = [name for name, kernel in MEMBERS.items() if kernel.feature_dimension(3) is not None]
RANDOM = {
    (name, method) for name, kernel in MEMBERS.items() for method in kernel.random_feature_methods
}

# Enough for what depends on the arithmetic of a kernel rather than on its formula.
KINDS = ["rbf", "exponential", "matern-1/2"]
MAPS = [("rbf", "fourier"), ("exponential", "positive"), ("matern-0.8", "fourier")]

members = pytest.mark.parametrize("kernel", MEMBERS.values(), ids=MEMBERS.keys())
names = pytest.mark.parametrize("name", MEMBERS)


def tokens(seed, n, d=3, size=0.7):
    return jax.device_put(size * np.random.default_rng(seed).normal(size=(n, d)))


def pairwise(name, xs, ys):
    rows, columns = list(np.asarray(xs)), list(np.asarray(ys))
    columns = rows if ys is xs else columns
    return np.array([[FORMULAS[name](x, y) for y in columns] for x in rows])


def close(actual, expected, tolerance):
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


@members
def test_gram_is_symmetric_and_positive_semidefinite(kernel):
    gram = np.asarray(kernel.gram(tokens(0, 30)))
    assert (gram == gram.T).all()
    assert np.linalg.eigvalsh(gram).min() >= -1e-10 * 30


@pytest.mark.parametrize("name", KINDS)
def test_gram_is_symmetric_with_an_exact_diagonal_bit_by_bit(name):
    xs = np.asarray(tokens(1, 259), np.float32)
    gram = np.asarray(MEMBERS[name].gram(xs))
    assert (gram == gram.T).all()
    assert (np.diagonal(gram) == MEMBERS[name].diagonal(xs)).all()


@names
def test_gram_is_the_formula_pair_by_pair(name):
    kernel, xs, ys = MEMBERS[name], tokens(2, 6), tokens(3, 5)
    close(kernel.gram(xs, ys), pairwise(name, xs, ys), 1e-12)
    close(kernel.gram(xs), pairwise(name, xs, xs), 1e-12)
    close(kernel(xs[0], ys[0]), FORMULAS[name](np.asarray(xs[0]), np.asarray(ys[0])), 1e-12)


@members
def test_a_kernel_on_scaled_tokens_is_the_kernel_of_scaled_tokens(kernel):
    xs, scale = tokens(2, 5), jnp.asarray(0.3)
    close(kernel.on_scaled_tokens(scale).gram(xs), kernel.gram(jnp.sqrt(scale) * xs), 1e-12)


@names
def test_diagonal_is_the_diagonal_of_gram(name):
    kernel, xs = MEMBERS[name], tokens(4, 6) + 3.0  # off center, where cancellation would show
    diagonal = kernel.diagonal(xs)
    np.testing.assert_allclose(diagonal, np.diagonal(kernel.gram(xs)), rtol=1e-15)
    close(diagonal, np.diagonal(pairwise(name, xs, xs)), 1e-12)


@pytest.mark.parametrize("name", POSITIVE)
def test_log_gram_is_the_logarithm_of_gram(name):
    kernel, xs, ys = MEMBERS[name], tokens(5, 6), tokens(6, 5)
    close(kernel.log_gram(xs, ys), np.log(kernel.gram(xs, ys)), 1e-12)
    close(kernel.log_gram(xs), np.log(kernel.gram(xs)), 1e-12)


@pytest.mark.parametrize("name", sorted(MEMBERS.keys() - POSITIVE))
def test_kernels_with_negative_values_refuse_a_logarithm(name):
    kernel, xs = MEMBERS[name], tokens(7, 30, size=3.0)
    assert kernel.gram(xs).min() < 0 or kernel.has_noise
    with pytest.raises(UnsupportedError, match="no logarithm"):
        kernel.log_gram(xs)


@pytest.mark.parametrize("name", POSITIVE)
def test_positive_kernels_are_nonnegative(name):
    assert MEMBERS[name].gram(tokens(7, 30, size=3.0)).min() >= 0


@members
def test_a_kernel_grows_if_it_overflows_on_long_tokens(kernel):
    xs = np.asarray(tokens(11, 6))
    xs = xs * (5000**0.5 / np.linalg.norm(xs, axis=1, keepdims=True))
    assert np.isfinite(kernel.gram(xs)).all() == (not kernel.grows)
    if kernel.is_positive:
        assert np.isfinite(kernel.log_diagonal(xs)).all()


@pytest.mark.parametrize("name", FINITE)
def test_features_give_the_gram_matrix_exactly(name):
    kernel, xs, ys = MEMBERS[name], tokens(12, 6), tokens(13, 5)
    features = kernel.features(xs)
    assert features.shape == (6, kernel.feature_dimension(3))
    close(np.asarray(features) @ np.asarray(kernel.features(ys)).T, kernel.gram(xs, ys), 1e-10)


@pytest.mark.parametrize("name", sorted(MEMBERS.keys() - FINITE))
def test_kernels_of_infinite_dimension_refuse_features(name):
    with pytest.raises(UnsupportedError, match=r"no finite feature map\. Use `gram`"):
        MEMBERS[name].features(tokens(14, 4))


def estimates(kernel, method, orthogonal, n_features, n_keys, xs, ys):
    @jax.jit
    @jax.vmap
    def estimate(key):
        features = kernel.random_features(key, n_features, 3, method, orthogonal)
        return features(xs) @ features(ys).T

    return np.asarray(estimate(jax.random.split(jax.random.key(15), n_keys)))


# The rest differs from these by parameters, or by a part that is here.
REPEATED = {"rbf-ard", "matern-9/2"}


@pytest.mark.parametrize(
    ("name", "method", "orthogonal"),
    [(*each, False) for each in sorted(RANDOM) if each[0] not in REPEATED]
    + [(*each, True) for each in [*MAPS, ("matern-3/2", "fourier")]],
)
def test_random_features_are_unbiased(name, method, orthogonal):
    kernel, xs, ys = MEMBERS[name], tokens(16, 6, size=0.3), tokens(17, 5, size=0.3)
    n_keys, gram = 1000, np.asarray(kernel.gram(xs, ys))
    values = estimates(kernel, method, orthogonal, 32, n_keys, xs, ys)
    standard_errors = np.std(values, axis=0) / n_keys**0.5
    assert (standard_errors < 0.05 * gram.mean()).all()  # the test has power
    assert (np.abs(values.mean(axis=0) - gram) <= 4 * standard_errors).all()


@pytest.mark.parametrize(("name", "method"), MAPS[:2])
def test_error_of_random_features_falls_with_the_root_of_their_number(name, method):
    kernel, xs, ys = MEMBERS[name], tokens(16, 6, size=0.3), tokens(17, 5, size=0.3)
    n_keys, logs, variance = 1000, [], 0.0
    for n_features in (32, 512):
        values = estimates(kernel, method, False, n_features, n_keys, xs, ys)
        squares = np.mean((values - np.asarray(kernel.gram(xs, ys))) ** 2, axis=(1, 2))  # per key
        logs.append(np.log(squares.mean()) / 2)
        # The delta method: the relative variance of the mean square, halved by the root.
        variance += np.var(squares) / squares.mean() ** 2 / n_keys / 4
    slope, standard_error = (logs[1] - logs[0]) / np.log(16), variance**0.5 / np.log(16)
    assert standard_error < 0.05
    assert abs(slope + 0.5) <= 4 * standard_error


@pytest.mark.parametrize("name", sorted(MEMBERS.keys() - {name for name, _ in RANDOM}))
def test_kernels_without_spectral_form_refuse_random_features(name):
    advice = "Use `features`" if name in FINITE else "Use `gram`"
    with pytest.raises(UnsupportedError, match=advice):
        MEMBERS[name].random_features(jax.random.key(0), 32, 3)


def check_gradients(function, *points, step=1e-5):
    """The gradient in every one of the points, along a random direction, by central differences."""
    values = jax.jit(jax.value_and_grad(function, argnums=tuple(range(len(points)))))
    gradients, rng = values(*points)[1], np.random.default_rng(18)
    for place, point in enumerate(points):
        direction = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), point)

        def moved(h, place=place, point=point, direction=direction):
            there = jax.tree.map(lambda leaf, slope: leaf + h * slope, point, direction)
            return float(values(*points[:place], there, *points[place + 1 :])[0])

        expected = (moved(step) - moved(-step)) / (2 * step)
        slopes = jax.tree.map(lambda g, v: float(np.sum(g * v)), gradients[place], direction)
        assert abs(expected) > 1e-3  # a zero gradient would prove nothing
        np.testing.assert_allclose(sum(jax.tree.leaves(slopes)), expected, rtol=1e-7, atol=1e-8)


def readouts(kernel):
    """A scalar of every output of a kernel, as a function of the kernel and two sets of tokens."""
    weights = tokens(19, 6, 5, size=1.0)

    yield lambda kernel, xs, ys: jnp.sum(weights * kernel.gram(xs, ys))
    yield lambda kernel, xs, ys: jnp.sum(weights[:, :1] * weights[:, 1:2].T * kernel.gram(xs))
    if kernel.is_positive:
        yield lambda kernel, xs, ys: jnp.sum(weights * kernel.log_gram(xs, ys))
    if kernel.feature_dimension(3) is not None:
        yield lambda kernel, xs, ys: jnp.sum(jnp.sin(kernel.features(xs)))


@pytest.mark.parametrize("kernel", [k for n, k in MEMBERS.items() if n != "constant"])
def test_gradients_by_finite_differences(kernel):
    xs, ys = tokens(48, 6, size=0.4), tokens(49, 5, size=0.4)
    parameters, static = eqx.partition(kernel, eqx.is_inexact_array)

    def total(xs, ys, parameters):  # incommensurable weights: errors cannot cancel
        own = eqx.combine(parameters, static)
        return sum(2**0.5**i * f(own, xs, ys) for i, f in enumerate(readouts(own)))

    if jax.tree.leaves(parameters):
        check_gradients(total, xs, ys, parameters)
    else:
        check_gradients(lambda xs, ys: total(xs, ys, parameters), xs, ys)


@members
def test_gradients_are_finite_at_coincident_tokens(kernel):
    xs = np.tile(tokens(22, 3), (2, 1))

    @jax.jit
    def gradients(kernel, xs):
        sums = (lambda xs: kernel.gram(xs).sum(), lambda xs: kernel.gram(xs, xs).sum())
        in_tokens = [jax.grad(total)(xs) for total in sums]
        in_parameters = jax.grad(lambda kernel: kernel.gram(xs).sum())(kernel)
        return *in_tokens, jax.grad(kernel)(xs[0], xs[3]), in_parameters

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients(kernel, xs)))


@members
def test_vmap_is_the_loop(kernel):
    xs = np.stack([tokens(23, 6), tokens(24, 6)])
    ys = np.stack([tokens(23, 5), tokens(24, 5)])
    gram = jax.vmap(kernel.gram)
    pairs, alone = jax.jit(lambda xs, ys: (gram(xs, ys), gram(xs)))(xs, ys)
    close(pairs, np.stack([kernel.gram(x, y) for x, y in zip(xs, ys, strict=True)]), 1e-14)
    close(alone, np.stack([kernel.gram(x) for x in xs]), 1e-14)


@members
def test_jit_changes_nothing(kernel):
    xs, ys = tokens(25, 6), tokens(26, 5)

    def everything(kernel):
        return kernel(xs[0], ys[0]), kernel.gram(xs), kernel.gram(xs, ys), kernel.diagonal(xs)

    for jitted, eager in zip(eqx.filter_jit(everything)(kernel), everything(kernel), strict=True):
        close(jitted, eager, 1e-14)


def outputs(kernel, xs, ys):
    yield kernel(xs[0], ys[0])
    yield kernel.gram(xs)
    yield kernel.gram(xs, ys)
    yield kernel.diagonal(xs)
    if kernel.is_positive:
        yield kernel.log_gram(xs, ys)
    if kernel.feature_dimension(3) is not None:
        yield kernel.features(xs)
    elif kernel.random_feature_methods:
        yield kernel.random_features(jax.random.key(28), 32, 3)(xs)


@members
@pytest.mark.parametrize("parameters", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_results_have_the_dtype_of_the_tokens(kernel, parameters, dtype):
    kernel = jax.tree.map(lambda leaf: leaf.astype(parameters), kernel)
    xs, ys = tokens(29, 6).astype(dtype), tokens(30, 5).astype(dtype)
    for output in jax.eval_shape(lambda xs, ys: list(outputs(kernel, xs, ys)), xs, ys):
        assert output.dtype == dtype


@members
def test_parameters_of_low_precision_do_not_limit_the_tokens(kernel):
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), kernel)
    same = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), low)
    xs, ys = tokens(31, 6), tokens(32, 5)
    close(low.gram(xs, ys), same.gram(xs, ys), 1e-14)
    close(low(xs[0], ys[0]), same(xs[0], ys[0]), 1e-14)


@members
def test_mixed_and_integer_tokens_take_the_wider_float(kernel):
    xs, ys = tokens(33, 6), tokens(34, 5).astype(jnp.float32)
    assert kernel.gram(xs, ys).dtype == jnp.float64
    integers = np.array([[1, 0, -1], [0, 1, 1]])
    close(kernel.gram(integers), kernel.gram(jnp.asarray(integers, dtype=jnp.float64)), 1e-15)


@pytest.mark.parametrize("name", KINDS)
def test_float64_inside_a_float32_program(name):
    kernel = MEMBERS[name]
    with jax.enable_x64(False):
        xs = np.asarray(tokens(35, 6), dtype=np.float32)
        low = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, dtype=np.float32)), kernel)
        inside = float64_inside(lambda kernel, xs: kernel.gram(xs))
        gradient = jax.jit(jax.grad(lambda xs: inside(low, xs).sum()))(xs)
        plain = jax.jit(jax.grad(lambda xs: low.gram(xs).sum()))(xs)
    assert gradient.dtype == jnp.float32
    close(gradient, plain, 1e-5)


@pytest.mark.parametrize("kernel", [k for n, k in MEMBERS.items() if n != "constant"])
def test_a_token_that_is_nan_is_like_no_other(kernel):
    xs = tokens(36, 4)
    spoiled = xs.at[2, 0].set(jnp.nan)
    expected = jnp.arange(4) == 2
    for found in (kernel.gram(spoiled), kernel.gram(spoiled, spoiled)):
        np.testing.assert_array_equal(jnp.isnan(found), expected[:, None] | expected[None, :])


@members
def test_refuses_tokens_of_the_wrong_shape(kernel):
    xs = tokens(36, 4)
    with pytest.raises(InputError, match=r"`xs` .* shape \(L, d\). Got shape \(3,\)"):
        kernel.gram(xs[0])
    with pytest.raises(InputError, match=r"`ys` .* Use jax.vmap for batches"):
        kernel.gram(xs, xs[None])
    with pytest.raises(InputError, match=r"`ys` .* same token dimension as `xs`, 3. Got 2"):
        kernel.gram(xs, xs[:, :2])
    with pytest.raises(InputError, match=r"`xs` .* one dimension. Got shape \(4, 0\)"):
        kernel.diagonal(xs[:, :0])
    assert kernel.gram(xs[:0], xs).shape == (0, 4)
    with pytest.raises(InputError, match=r"real numbers. Got complex"):
        kernel.gram(xs.astype(complex))
    with pytest.raises(InputError, match=r"`scale` argument of \w+.on_scaled_tokens .* > 0"):
        kernel.on_scaled_tokens(-2.0)
    with pytest.raises(InputError, match=r"`x` .* shape \(d,\)"):
        kernel(xs, xs)


@pytest.mark.parametrize("name", sorted({name for name, _ in RANDOM}))
def test_refuses_wrong_requests_for_random_features(name):
    kernel, key = MEMBERS[name], jax.random.key(37)
    with pytest.raises(InputError, match=r"`n_features` .* whole number ≥ 1"):
        kernel.random_features(key, 0, 3)
    with pytest.raises(InputError, match=r"`dimension` .* whole number ≥ 1"):
        kernel.random_features(key, 32, -3)
    with pytest.raises(InputError, match=r'`method` .* "fourier", "positive" or None'):
        kernel.random_features(key, 32, 3, method="taylor")
    with pytest.raises(InputError, match=r"`n_features` .* a multiple of"):
        kernel.random_features(key, 31, 3, method="fourier")
    with pytest.raises(InputError, match=r"`xs` .* token dimension of the draw, 3"):
        jax.eval_shape(lambda xs: kernel.random_features(key, 32, 3)(xs), tokens(38, 6, 2))


@pytest.mark.parametrize("name", ["rbf", "exponential", "matern-1/2"])
def test_random_features_have_the_size_asked_for_and_are_frozen(name):
    kernel, xs = MEMBERS[name], tokens(40, 6)
    draw = jax.jit(lambda key: kernel.random_features(key, 32, 3))
    features, other = draw(jax.random.key(39)), draw(jax.random.key(41))
    assert features(xs).shape == (6, 32)
    assert (features(xs) == features(xs)).all()
    assert not np.allclose(features(xs), other(xs))


pairs = hnp.arrays(np.float64, (2, 3), elements=st.floats(-2, 2))


@members
@settings(max_examples=20)
@given(pair=pairs)
def test_symmetry_and_cauchy_schwarz(kernel, pair):
    (own, value), (turned, other) = np.asarray(kernel.gram(pair))
    assert value == pytest.approx(turned, rel=1e-13)
    assert value**2 <= own * other * (1 + 1e-12) + 1e-300
