"""The marginal likelihood: against SciPy, and its gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from finetti.attention import ConditionalMean
from finetti.core.errors import InputError
from finetti.kernels import RBF, Exponential, Linear, Polynomial

pytestmark = pytest.mark.rounding

close = partial(np.testing.assert_allclose, rtol=0)
KERNELS = {
    "rbf": RBF(0.9),
    "exponential": Exponential(0.5),
    "linear": Linear(),
    "polynomial": Polynomial(3, scale=0.5),
}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
MASK = jnp.array([True, True, False, True, False, True])


def by_scipy(kernel, ridge, keys, values):
    covariance = np.asarray(kernel.gram(keys)) + ridge * np.eye(len(keys))
    normal = multivariate_normal(np.zeros(len(keys)), covariance)
    return sum(normal.logpdf(column) for column in np.asarray(values).T)


@kernels
def test_equals_the_density_of_scipy(kernel, context):
    _, keys, values = context
    module = ConditionalMean(kernel, ridge=0.3)
    ours = module.log_marginal_likelihood(keys, values)
    close(ours, by_scipy(kernel, 0.3, keys, values), atol=1e-10)
    dirty = [jnp.where(MASK[:, None], array, jnp.nan) for array in (keys, values)]
    masked = module.log_marginal_likelihood(*dirty, MASK)
    close(masked, by_scipy(kernel, 0.3, keys[MASK], values[MASK]), atol=1e-10)
    per_token = ConditionalMean(kernel, ridge_per_token=0.1)
    masked = per_token.log_marginal_likelihood(*dirty, MASK)
    close(masked, by_scipy(kernel, 0.4, keys[MASK], values[MASK]), atol=1e-10)


def test_one_number_per_context(context):
    _, keys, values = context
    module = ConditionalMean(RBF(), ridge=0.3)
    batch = jnp.stack([keys, keys + 1, 2 * keys]), jnp.stack([values, values - 1, values])
    loop = jnp.stack([module.log_marginal_likelihood(*pair) for pair in zip(*batch, strict=True)])
    close(module.log_marginal_likelihood(*batch), loop, atol=1e-12)
    assert module.log_marginal_likelihood(keys, values).shape == ()


@kernels
def test_gradient_equals_that_of_the_written_out_density(kernel, context):
    _, keys, values = context
    module = ConditionalMean(kernel, ridge=0.3)

    def written_out(module, keys, values):
        keys, values = keys[MASK], values[MASK]
        gram = jax.vmap(lambda x: jax.vmap(lambda y: module.kernel(x, y))(keys))(keys)
        covariance = gram + jnp.exp(module.log_ridge) * jnp.eye(len(keys))
        quadratic = jnp.sum(values * jnp.linalg.solve(covariance, values))
        logarithm = jnp.linalg.slogdet(covariance)[1] + len(keys) * jnp.log(2 * jnp.pi)
        return -0.5 * quadratic - 0.5 * values.shape[1] * logarithm

    def ours(module, keys, values):
        return module.log_marginal_likelihood(keys, values, MASK)

    mine = jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(module, keys, values)
    slow = jax.jit(jax.grad(written_out, argnums=(0, 1, 2)))(module, keys, values)
    for left, right in zip(jax.tree.leaves(mine), jax.tree.leaves(slow), strict=True):
        assert jnp.abs(right).max() > 1e-3  # zeros would prove nothing
        close(left, right, atol=1e-10 * max(1.0, float(jnp.abs(right).max())))


def test_is_a_density_of_the_values():
    """One key, one coordinate: it integrates to 1 over the value."""
    keys, grid = jnp.array([[0.3, -0.2, 0.5]]), np.linspace(-12.0, 12.0, 401)
    module = ConditionalMean(RBF(), ridge=0.5)
    batch = jnp.broadcast_to(keys, (401, 1, 3)), jnp.asarray(grid)[:, None, None]
    density = np.exp(module.log_marginal_likelihood(*batch))
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-12)


def test_long_keys_of_the_exponential_kernel_do_not_overflow():
    keys = 40.0 * jnp.eye(6)[:, :3] + jnp.arange(6.0)[:, None] * 0.1
    values = jnp.ones((6, 2))
    value = ConditionalMean(Exponential(), ridge=0.1).log_marginal_likelihood(keys, values)
    assert jnp.isfinite(value)


def test_a_mask_per_query_is_refused(context):
    _, keys, values = context
    module = ConditionalMean(RBF())
    with pytest.raises(InputError, match="`mask`"):
        module.log_marginal_likelihood(keys, values, jnp.ones((1, 6), bool))


@pytest.mark.parametrize(
    ("argument", "arrays"),
    [
        ("keys", (jnp.zeros(3), jnp.zeros((1, 2)))),
        ("keys", (jnp.zeros((0, 3)), jnp.zeros((0, 2)))),
        ("values", (jnp.zeros((6, 3)), jnp.zeros((5, 2)))),
        ("keys", (jnp.full((6, 3), jnp.nan), jnp.zeros((6, 2)))),
        ("values", (jnp.zeros((6, 3)), jnp.full((6, 2), jnp.inf))),
    ],
)
def test_bad_arguments_are_named(argument, arrays):
    with pytest.raises(InputError, match=f"`{argument}` argument of .*log_marginal_likelihood"):
        ConditionalMean(RBF()).log_marginal_likelihood(*arrays)
