"""Attention with kernels that users bring, with noise, and with kernels beyond float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, KernelSmoother, choose_ridge, cme_attention
from finetti.kernels import RBF, Constant, Exponential, Kernel, Linear, White

RNG = np.random.default_rng(3)
KEYS, VALUES, QUERY = RNG.normal(size=(9, 2)), RNG.normal(size=(9, 3)), RNG.normal(size=(4, 2))


class Laplace(Kernel):
    """exp(−‖x − y‖₁): a formula and what is true of it."""

    @property
    def is_positive(self):
        return True

    def _gram(self, xs, ys):
        return jnp.exp(-jnp.abs(xs[:, None, :] - ys[None, :, :]).sum(-1))


def laplace(xs, ys):
    return np.exp(-np.abs(xs[:, None, :] - ys[None, :, :]).sum(-1))


def test_a_kernel_that_is_only_a_formula_works_everywhere():
    gram, cross = laplace(KEYS, KEYS), laplace(QUERY, KEYS)
    weights = np.linalg.solve(gram + 0.1 * np.eye(9), cross.T)
    mean, variance = ConditionalMean(Laplace(), ridge=0.1).posterior(QUERY, KEYS, VALUES)
    np.testing.assert_allclose(mean, weights.T @ VALUES, rtol=1e-10)
    np.testing.assert_allclose(variance, 1 - np.sum(cross.T * weights, axis=0), rtol=1e-9)
    smooth = KernelSmoother(Laplace())(QUERY, KEYS, VALUES)
    expected = cross @ VALUES / cross.sum(1, keepdims=True)
    np.testing.assert_allclose(smooth, expected, rtol=1e-10)
    assert choose_ridge(KEYS, VALUES, kernel=Laplace()).ridge > 0
    # A functional form scales the tokens, which this kernel has no parameter for.
    heads = (array[None, :, None, :] for array in (QUERY, KEYS, VALUES))
    found = cme_attention(*heads, kernel=Laplace(), ridge=0.1, scale=0.25)[0, :, 0]
    near = np.linalg.solve(
        laplace(KEYS / 2, KEYS / 2) + 0.1 * np.eye(9), laplace(KEYS / 2, QUERY / 2)
    )
    np.testing.assert_allclose(found, near.T @ VALUES, rtol=1e-10)


@pytest.mark.parametrize("is_causal", [False, True])
def test_white_noise_in_the_kernel_is_a_ridge_with_its_variance(is_causal):
    query = KEYS if is_causal else QUERY
    noisy = ConditionalMean(RBF() + 0.5 * White(0.4), ridge=0.1)
    plain = ConditionalMean(RBF(), ridge=0.3)
    mean, variance = noisy.posterior(query, KEYS, VALUES, is_causal=is_causal)
    expected, rest = plain.posterior(query, KEYS, VALUES, is_causal=is_causal)
    np.testing.assert_allclose(mean, expected, rtol=1e-10)
    np.testing.assert_allclose(variance, rest + 0.2, rtol=1e-10)
    np.testing.assert_allclose(
        noisy.log_marginal_likelihood(KEYS, VALUES),
        plain.log_marginal_likelihood(KEYS, VALUES),
        rtol=1e-10,
    )


def test_white_noise_is_solved_by_one_factorization_in_float64():
    keys = RNG.normal(size=(300, 2)).astype(np.float32)
    plan = ConditionalMean(RBF() + White(0.1)).plan(keys.shape, keys.shape, keys.shape)
    assert plan.route == "cholesky"


def test_a_constant_kernel_is_an_unknown_offset():
    mean = ConditionalMean(Constant(1e8), ridge=1.0)(QUERY, KEYS, VALUES)
    np.testing.assert_allclose(mean, np.broadcast_to(VALUES.mean(0), mean.shape), rtol=1e-6)


def test_a_kernel_that_grows_and_changes_sign_is_nan_beyond_float64():
    attention = ConditionalMean(Linear() * Exponential(), ridge=0.1)
    assert np.isfinite(attention(QUERY, KEYS, VALUES)).all()
    with pytest.warns(UserWarning, match="no solution"):
        assert np.isnan(attention(30 * QUERY, 30 * KEYS, VALUES)).all()
    assert np.isfinite(ConditionalMean(Exponential())(30 * QUERY, 30 * KEYS, VALUES)).all()
