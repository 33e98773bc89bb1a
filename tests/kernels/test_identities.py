"""Equalities between kernels, and with other libraries."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.gaussian_process import kernels as peers
from sklearn.metrics.pairwise import polynomial_kernel

from finetti.kernels import (
    RBF,
    Constant,
    Exponential,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    White,
)

RANDOM = np.random.default_rng(0)
XS, YS = jnp.asarray(RANDOM.normal(size=(6, 3))), jnp.asarray(RANDOM.normal(size=(5, 3)))
ARD = [0.6, 1.0, 1.9]


def close(actual, expected, rtol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rtol)


def half_squares(xs, ys):
    return (jnp.sum(xs**2, axis=1)[:, None] + jnp.sum(ys**2, axis=1)[None, :]) / 2


def test_rbf_is_exponential_over_the_norms():
    expected = Exponential().gram(XS, YS) * jnp.exp(-half_squares(XS, YS))
    close(RBF().gram(XS, YS), expected)


def test_scale_of_exponential_is_an_inverse_square_lengthscale():
    over = Exponential(scale=0.25).log_gram(XS, YS) - half_squares(XS, YS) / 4
    close(jnp.exp(over), RBF(lengthscale=2.0).gram(XS, YS))


def test_exponential_over_the_norms_is_rbf_where_exponential_overflows():
    far = 5000**0.5 * jnp.eye(3)[:1] + 0.1 * XS
    assert jnp.isinf(Exponential().gram(far)).all()
    over = Exponential().log_gram(far) - half_squares(far, far)
    close(jnp.exp(over), RBF().gram(far), rtol=1e-10)


@settings(max_examples=25)
@given(hnp.arrays(np.float64, (2, 4), elements=st.floats(-1, 1)))
def test_on_the_unit_sphere_exponential_is_e_times_rbf(pair):
    pair = pair + np.array([[2.0, 0, 0, 0]])  # away from zero, so that it can be normalized
    x, y = jnp.asarray(pair / np.linalg.norm(pair, axis=1, keepdims=True))
    close(Exponential()(x, y), np.e * RBF()(x, y))


@settings(max_examples=25)
@given(
    hnp.arrays(np.float64, (2, 3), elements=st.floats(-2, 2)),
    hnp.arrays(np.float64, 3, elements=st.floats(-10, 10)),
)
@pytest.mark.parametrize("kernel", [RBF(0.9), Matern(0.5), Matern(1.5, ARD)])
def test_stationary_kernels_ignore_translation(kernel, pair, offset):
    pair, offset = jnp.asarray(pair), jnp.asarray(offset)[None, :]
    np.testing.assert_allclose(kernel.gram(pair + offset), kernel.gram(pair), rtol=0, atol=1e-6)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("lengthscale", [0.7, ARD])
def test_matern_is_that_of_scikit_learn(nu, lengthscale):
    peer = peers.Matern(length_scale=lengthscale, nu=nu)
    kernel = Matern(nu, lengthscale)
    close(kernel.gram(XS, YS), peer(np.asarray(XS), np.asarray(YS)))
    close(kernel.gram(XS), peer(np.asarray(XS)))


@pytest.mark.parametrize("lengthscale", [0.7, ARD])
def test_rbf_is_that_of_scikit_learn(lengthscale):
    peer = peers.RBF(length_scale=lengthscale)
    close(RBF(lengthscale).gram(XS, YS), peer(np.asarray(XS), np.asarray(YS)))


def test_polynomial_is_that_of_scikit_learn():
    expected = polynomial_kernel(XS, YS, degree=3, gamma=0.5, coef0=0.8)
    close(Polynomial(3, scale=0.5, bias=0.8).gram(XS, YS), expected)


def test_smoother_matern_is_closer_to_rbf():
    gaps = [float(jnp.abs(Matern(nu).gram(XS) - RBF().gram(XS)).max()) for nu in (0.5, 1.5, 2.5)]
    assert gaps[0] > gaps[1] > gaps[2]


def test_polynomial_of_degree_one_is_linear():
    close(Polynomial(1, bias=0.0).gram(XS, YS), Linear().gram(XS, YS))
    close(Polynomial(1, bias=0.0).features(XS), XS)


def test_powers_are_products():
    square = Linear() * Linear()
    close(square.gram(XS, YS), Polynomial(2, bias=0.0).gram(XS, YS))
    assert square.feature_dimension(3) == 9
    assert Polynomial(2, bias=0.0).feature_dimension(3) == 6  # xy and yx counted once


def test_product_of_exponentials_adds_their_scales():
    product = Exponential(0.3) * Exponential(0.5)
    close(product.gram(XS, YS), Exponential(0.8).gram(XS, YS))
    close(product.log_gram(XS, YS), Exponential(0.8).log_gram(XS, YS))


def test_product_of_rbfs_adds_inverse_squares():
    close((RBF(3.0) * RBF(4.0)).gram(XS, YS), RBF(2.4).gram(XS, YS))


@pytest.mark.parametrize("nu", [0.1, 0.8, 1.0, 1.7, 3.5, 9.5, 10.5, 20.0])
def test_matern_of_any_smoothness_is_that_of_scikit_learn(nu):
    far = np.asarray(XS) * np.logspace(-8, 1, 6)[:, None]
    expected = peers.Matern(length_scale=0.7, nu=nu)(far)
    np.testing.assert_allclose(Matern(nu, 0.7).gram(far), expected, rtol=0, atol=2e-13)


@pytest.mark.parametrize("nu", [0.3, 0.8, 1.0, 1.7, 10.5])
def test_slopes_of_the_matern_kernel_by_mpmath(nu):
    def value(r):
        t = mpmath.sqrt(2 * nu) * r
        return 2 ** (1 - mpmath.mpf(nu)) / mpmath.gamma(nu) * t**nu * mpmath.besselk(nu, t)

    def along(r):
        return Matern(nu).gram(jnp.array([[r]]), jnp.zeros((1, 1)))[0, 0]

    for r in (1e-3, 0.4, 3.0):
        with mpmath.workdps(30):
            first, second = (float(mpmath.diff(value, r, n)) for n in (1, 2))
        close(jax.grad(along)(r), first, rtol=1e-10)
        close(jax.grad(jax.grad(along))(r), second, rtol=1e-9)


def test_other_kernels_are_those_of_scikit_learn():
    xs, ys = np.asarray(XS), np.asarray(YS)
    peer = peers.RationalQuadratic(length_scale=0.7, alpha=1.3)
    close(RationalQuadratic(1.3, 0.7).gram(xs, ys), peer(xs, ys))
    peer = peers.ExpSineSquared(length_scale=0.7, periodicity=1.9)
    close(Periodic(1.9, 0.7).gram(xs[:, :1], ys[:, :1]), peer(xs[:, :1], ys[:, :1]))
    twice = np.r_[xs, xs[:1]]
    for own, peer in (
        (Constant(0.4), peers.ConstantKernel(0.4)),
        (White(0.4), peers.WhiteKernel(0.4)),
        (Constant(2.0) * RBF(0.7) + White(0.1), 2.0 * peers.RBF(0.7) + peers.WhiteKernel(0.1)),
    ):
        close(own.gram(twice, ys), peer(twice, ys))
        close(own.gram(twice), peer(twice))
        close(own.diagonal(twice), peer.diag(twice))


def test_a_rational_quadratic_of_large_alpha_is_rbf():
    close(RationalQuadratic(1e9, 0.7).gram(XS), RBF(0.7).gram(XS), rtol=1e-6)


def test_a_sum_or_product_grows_if_a_part_does():
    assert (RBF() + Exponential(0.5)).grows
    assert (Linear() * Exponential(0.5)).grows
    assert not (2.0 * RBF() + Linear() * Matern()).grows
