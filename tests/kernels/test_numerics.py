"""Where a careless formula would lose digits, overflow or return NaN."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.kernels import RBF, Exponential, Matern

pytestmark = pytest.mark.rounding

XS = jax.random.normal(jax.random.key(0), (6, 3))


def test_rbf_keeps_its_digits_far_from_the_origin():
    far = (XS + 1000.0).astype(jnp.float32)
    expected = RBF().gram(far.astype(jnp.float64) - 1000.0)
    np.testing.assert_allclose(RBF().gram(far), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(RBF().gram(far, far[::-1]), expected[:, ::-1], rtol=0, atol=1e-6)


def test_log_gram_outlives_gram():
    near, far = jnp.zeros((1, 2)), jnp.array([[300.0, 400.0]])
    assert RBF().gram(near, far) == 0
    np.testing.assert_allclose(RBF().log_gram(near, far), -125000.0, rtol=1e-14)
    np.testing.assert_allclose(
        Matern(1.5).log_gram(1e3 * near, 1e3 * far),
        np.log1p(np.sqrt(3) * 5e5) - np.sqrt(3) * 5e5,
        rtol=1e-14,
    )
    np.testing.assert_allclose(Exponential().log_gram(far), 250000.0, rtol=1e-14)
    both = RBF() + 0.5 * Exponential()
    np.testing.assert_allclose(both.log_gram(far), 250000.0 + np.log(0.5), rtol=1e-14)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_one_at_equal_tokens_of_two_arrays(nu):
    xs = (XS + 10.0).astype(jnp.float32)
    assert (jnp.diagonal(Matern(nu).gram(xs, xs)) == 1).all()


def test_matern_keeps_the_digits_of_small_distances():
    x = jnp.array([100.0, 100.0])
    y = x + jnp.array([3e-9, 4e-9])
    distance = float(jnp.linalg.norm(y - x))
    gap = 1 - Matern(0.5).gram(x[None], y[None])
    np.testing.assert_allclose(gap, distance, rtol=1e-6)


@pytest.mark.parametrize("kernel", [RBF(), Matern(1.5), Matern(2.5)])
def test_gradient_vanishes_at_coincident_tokens(kernel):
    assert (jax.grad(kernel)(XS[0], XS[0]) == 0).all()


def test_random_features_carry_gradients_to_parameters_but_not_to_draws():
    def estimate(parts, static):
        features = eqx.combine(parts, static)
        return jnp.sum(features(XS)[:, 0])

    features = RBF(0.7).random_features(jax.random.key(1), 32, 3)
    parts, static = eqx.partition(features, eqx.is_inexact_array)
    gradient = jax.grad(estimate)(parts, static)
    assert (gradient.frequencies == 0).all()
    assert jnp.abs(gradient.log_token_scale) > 0
    slope = eqx.filter_grad(
        lambda kernel: jnp.sum(kernel.random_features(jax.random.key(1), 32, 3)(XS)[:, 0])
    )(RBF(0.7))
    np.testing.assert_allclose(slope.log_lengthscale, -gradient.log_token_scale, rtol=1e-12)


def test_orthogonal_draws_are_orthogonal_within_blocks_with_normal_lengths():
    n_blocks = 2000
    draw = RBF().random_features(jax.random.key(2), 2 * 3 * n_blocks, 3, orthogonal=True)
    blocks = draw.frequencies.reshape(n_blocks, 3, 3)
    products = jnp.einsum("bid,bjd->bij", blocks, blocks)
    off_diagonal = products * (1 - jnp.eye(3))[None]
    assert jnp.abs(off_diagonal).max() < 1e-12
    squares = jnp.diagonal(products, axis1=1, axis2=2)  # chi-square: mean 3, variance 6
    assert abs(squares.mean() - 3) <= 4 * (6 / squares.size) ** 0.5


def test_orthogonal_draws_lower_the_variance():
    def estimate(key, orthogonal):
        features = RBF().random_features(key, 32, 3, orthogonal=orthogonal)
        return features(tokens) @ features(tokens[:5]).T

    tokens = 0.4 * XS
    keys = jax.random.split(jax.random.key(4), 1000)
    plain, orthogonal = (
        jnp.var(jax.vmap(lambda key, o=o: estimate(key, o))(keys), axis=0).mean()
        for o in (False, True)
    )
    assert orthogonal < 0.7 * plain


def test_positive_features_are_positive():
    for kernel in (RBF(), Exponential()):
        assert (kernel.random_features(jax.random.key(5), 32, 3, "positive")(XS) > 0).all()


@pytest.mark.parametrize("of_matrix", [False, True], ids=["pair", "gram"])
@pytest.mark.parametrize(
    ("kernel", "curvature"),
    [(RBF, -1.0), (partial(Matern, 1.5), -3.0), (partial(Matern, 2.5), -5 / 3)],
    ids=["rbf", "matern-3/2", "matern-5/2"],
)
@pytest.mark.parametrize("lengthscale", [1.0, 0.4])
def test_curvature_at_distance_zero(kernel, curvature, lengthscale, of_matrix):
    """K'' = −1/ℓ², −3/ℓ² and −5/(3ℓ²) at r = 0, and finite differences elsewhere."""
    kernel = kernel(lengthscale=lengthscale)

    def along(step):
        x, y = jnp.array([step, 0.0]), jnp.zeros(2)
        return kernel.gram(x[None], y[None])[0, 0] if of_matrix else kernel(x, y)

    second = jax.grad(jax.grad(along))
    np.testing.assert_allclose(second(0.0), curvature / lengthscale**2, rtol=1e-12)
    h = 1e-4
    differences = (along(0.3 + h) - 2 * along(0.3) + along(0.3 - h)) / h**2
    np.testing.assert_allclose(second(0.3), differences, rtol=1e-5)


def test_equal_tokens_far_apart_from_others_are_equal():
    """Rounding 1e12 would leave a distance of 1e-2 between them."""
    xs = jnp.array([[1e6, 3.0], [1e6, 3.0], [-1e6, 0.1], [7.7, -1e6]])
    np.testing.assert_array_equal(RBF().gram(xs, xs)[:2, :2], 1.0)
    np.testing.assert_array_equal(jax.grad(lambda xs: RBF().gram(xs).sum())(xs), 0.0)
