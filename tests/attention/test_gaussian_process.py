"""CME attention is Bayesian: the latent regression (3.3), and the Gaussian process B.1."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from finetti.attention import ConditionalMean, cme_solve
from finetti.kernels import RBF, Exponential, Linear, Matern, Polynomial

pytestmark = pytest.mark.rounding

close = partial(np.testing.assert_allclose, rtol=0)

KERNELS = {
    "rbf": RBF(0.9),
    "exponential": Exponential(0.5),
    "linear": Linear(),
    "polynomial": Polynomial(3, scale=0.5),
    "matern": Matern(2.5, 1.2),
    "sum": RBF() + 0.3 * Exponential(0.5),
}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


def joint_conditioning(kernel, ridge, context):
    """Mean and covariance of f(q) given V from the covariance of all (f(k), f(q), ε), written out.

    V = f(K) + ε and f(q) are linear images of one Gaussian vector with covariance Σ.
    """
    tokens = jnp.concatenate([context.keys, context.query])
    length, total = len(context.keys), len(tokens)
    prior = np.zeros((total + length, total + length))
    pairs = jax.vmap(lambda x: jax.vmap(lambda y: kernel(x, y))(tokens))
    prior[:total, :total] = jax.jit(pairs)(tokens)
    prior[total:, total:] = ridge * np.eye(length)
    observe = np.hstack(
        [np.eye(length), np.zeros((length, total - length)), np.eye(length)]
    )  # V = f(K) + ε
    read = np.hstack([np.zeros((total - length, length)), np.eye(total - length)])
    read = np.hstack([read, np.zeros((total - length, length))])  # f(q)
    gain = read @ prior @ observe.T @ np.linalg.inv(observe @ prior @ observe.T)
    covariance = read @ prior @ read.T - gain @ observe @ prior @ read.T
    return gain @ np.asarray(context.values), np.diag(covariance)


def test_linear_kernel_is_the_posterior_of_the_latent_regression(context):
    tau2, sigma2 = 1.7, 0.4  # prior variance of z, noise variance
    keys, values, query = (np.asarray(array) for array in context[1:] + context[:1])
    # vec(z) | V by the information form, d_r·d_c unknowns at once.
    design = np.kron(np.eye(2), keys)  # vec(V) = design · vec(zᵀ)
    precision = design.T @ design / sigma2 + np.eye(6) / tau2
    covariance = np.linalg.inv(precision)
    z_mean = (covariance @ design.T @ values.T.ravel() / sigma2).reshape(2, 3)
    module = ConditionalMean(Linear(), ridge=sigma2 / tau2)
    mean, variance = module.posterior(*context)
    close(mean, query @ z_mean.T, atol=1e-10)
    # The kernel has unit prior variance, so variances are in units of τ².
    exact = np.einsum("qi,ij,qj->q", query, covariance[:3, :3], query)
    close(tau2 * variance, exact, atol=1e-10)
    _, predictive = module.posterior(*context, predictive=True)
    close(tau2 * predictive, exact + sigma2, atol=1e-10)  # σ̃² of (3.7)


@kernels
@pytest.mark.parametrize("ridge", [0.02, 1.5])
def test_any_kernel_conditions_the_joint_gaussian(kernel, ridge, context):
    mean, variance = joint_conditioning(kernel, ridge, context)
    module = ConditionalMean(kernel, ridge=ridge)
    scale = max(1.0, np.abs(np.asarray(kernel.diagonal(context.query))).max())
    close(module(*context), mean, atol=1e-10)
    ours, our_variance = module.posterior(*context)
    close(ours, mean, atol=1e-10)
    close(our_variance, variance, atol=1e-10 * scale)
    predictive = module.posterior(*context, predictive=True)[1]
    close(predictive, variance + ridge, atol=1e-10 * scale)
    solution = cme_solve(*context, kernel=kernel, ridge=ridge)
    close(solution.mean, mean, atol=1e-10)
    close(solution.variance, variance, atol=1e-10 * scale)


@kernels
def test_equals_kernel_ridge_of_scikit_learn(kernel, context):
    gram, cross = kernel.gram(context.keys), kernel.gram(context.query, context.keys)
    model = KernelRidge(alpha=0.3, kernel="precomputed").fit(gram, context.values)
    ours = ConditionalMean(kernel, ridge=0.3)(*context)
    close(ours, model.predict(cross), atol=1e-10)


def test_ridge_per_token_counts_the_keys_that_are_read(context):
    """(A.3) has Lλ where (4.5) has λ; masked keys do not count."""
    mask = jnp.array([True, True, False, True, True, False])
    per_token = ConditionalMean(RBF(), ridge_per_token=0.05)
    for readable, count in ((None, 6), (mask, 4)):
        plain = ConditionalMean(RBF(), ridge=0.05 * count)
        close(per_token(*context, readable), plain(*context, readable), atol=1e-13)
        predictive = [
            module.posterior(*context, readable, predictive=True)[1]
            for module in (per_token, plain)
        ]
        close(*predictive, atol=1e-13)


def test_predictive_variance_with_a_mask_per_query(context):
    mask = jnp.arange(6)[None, :] <= jnp.arange(4)[:, None]
    module = ConditionalMean(RBF(), ridge_per_token=0.05)
    plain, predictive = (module.posterior(*context, mask, predictive=p)[1] for p in (False, True))
    close(predictive - plain, 0.05 * jnp.arange(1.0, 5.0), atol=1e-14)


def test_variance_never_grows_with_another_key_and_never_with_less_noise(context):
    query, keys, values = context
    module = ConditionalMean(RBF(), ridge=0.2)
    masks = jnp.tril(jnp.ones((6, 6), bool))
    variances = jnp.stack([module.posterior(query, keys, values, mask)[1] for mask in masks])
    assert (jnp.diff(variances, axis=0) <= 1e-14).all()
    ridges = [
        ConditionalMean(RBF(), ridge=r).posterior(*context)[1] for r in (1e-4, 1e-2, 1.0, 1e2)
    ]
    assert (jnp.diff(jnp.stack(ridges), axis=0) >= 0).all()
