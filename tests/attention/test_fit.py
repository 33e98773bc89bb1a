"""Kernel and ridge by marginal likelihood: against scikit-learn, and what the profile says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from finetti.attention import fit_kernel
from finetti.attention.cme.kernel_fit import INTERVAL_DEPTH
from finetti.core.errors import InputError
from finetti.kernels import RBF, Linear


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    keys = rng.uniform(-3, 3, size=(40, 1))
    return keys, np.sin(2 * keys) + 0.1 * rng.normal(size=(40, 1))


@pytest.fixture(scope="module")
def fit(data):
    return fit_kernel(*data, starts=2)


def test_the_optimum_is_scikit_learns(data, fit):
    keys, values = data
    reference = GaussianProcessRegressor(
        sk.ConstantKernel() * sk.RBF() + sk.WhiteKernel(0.1), n_restarts_optimizer=2, random_state=0
    ).fit(keys, values[:, 0])
    assert fit.log_likelihood == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-4)
    constant, lengthscale, noise = np.exp(reference.kernel_.theta)
    kernel = fit.module.kernel
    found = kernel.constant, kernel.part.lengthscale, fit.module.ridge
    np.testing.assert_allclose(found, (constant, lengthscale, noise), rtol=5e-3)
    assert fit.at_bound == ()
    assert fit.starts.max() == fit.log_likelihood


def test_the_profile_has_its_top_at_the_fit_and_gives_an_interval(fit):
    values, curve = fit.profile("ridge")
    assert curve.max() == pytest.approx(fit.log_likelihood, abs=1e-6)
    assert (np.diff(values) > 0).all()
    low, high = fit.interval("ridge")
    assert low < float(fit.module.ridge) < high
    assert low < 0.01 < high  # the truth
    assert 0.5 < np.log(high / low) < 2  # about 2·1.96·√(2/40) = 0.88
    with pytest.raises(InputError, match="lengthscale"):
        fit.profile("nothing")


def test_an_interval_ends_where_the_likelihood_first_falls(fit, monkeypatch):
    """Of two optima, the lower one does not count; an end that is not bounded is the last place."""
    log_values, curve = np.arange(7.0), np.array([9.0, 0.0, 8.0, 10.0, 6.0, 9.5, 9.0])
    monkeypatch.setattr(type(fit), "profile", lambda self, name: (np.exp(log_values), curve))
    depth = INTERVAL_DEPTH
    low, high = np.log(fit.interval("ridge"))
    assert low == pytest.approx(2 + (2 - depth) / 2)
    assert high == pytest.approx(3 + depth / 4)
    curve[:] = 10.0
    assert np.log(fit.interval("ridge")) == pytest.approx([0, 6])


def test_the_fit_has_the_precision_of_the_caller(fit, data):
    assert {leaf.dtype for leaf in jax.tree.leaves(fit.module)} == {jnp.asarray(1.0).dtype}
    with pytest.raises(InputError, match=r"`mask` argument of .* an array of booleans"):
        fit_kernel(*data, RBF())  # the kernel without its name


def test_it_says_what_it_found(fit, data):
    text = str(fit)
    assert "part.lengthscale" in text
    assert "ridge" in text
    narrow = fit_kernel(*data, kernel=RBF(50.0), starts=1, factor=1.5)
    assert "lengthscale" in narrow.at_bound
    assert "At the bound" in str(narrow)


def test_bad_input(data):
    with pytest.raises(InputError, match="`starts`"):
        fit_kernel(*data, starts=0)
    with pytest.raises(InputError, match="`factor`"):
        fit_kernel(*data, factor=0.5)
    # A kernel without parameters of its own still has a ridge.
    assert float(fit_kernel(*data, kernel=Linear(), starts=1).module.ridge) > 0


def test_a_noiseless_function_is_found_from_one_start():
    """The likelihood is 1e13 wide over the search: the first step must not jump to its corner."""
    keys = np.linspace(-3, 3, 40)[:, None]
    fit = fit_kernel(keys, np.sin(keys[:, 0]), kernel=RBF(), starts=1)
    assert fit.log_likelihood > 400
    low, high = fit.interval("lengthscale")
    assert low < float(fit.module.kernel.lengthscale) < high
    assert fit.at_bound == ("ridge",)


def test_bounds_are_kept(data):
    fit = fit_kernel(*data, kernel=RBF(), starts=1, bounds={"lengthscale": (2.0, 3.0)})
    assert float(fit.module.kernel.lengthscale) == pytest.approx(2.0)
    assert fit.at_bound == ("lengthscale",)
    assert fit.converged.all()
    kept = fit_kernel(*data, kernel=RBF(), starts=1, bounds={"ridge": (0.3, 0.3)})
    assert float(kept.module.ridge) == pytest.approx(0.3, rel=1e-12)
    assert kept.at_bound == ()
    with pytest.raises(InputError, match=r"`bounds`.*'lengthscale', 'ridge'"):
        fit_kernel(*data, kernel=RBF(), bounds={"scale": (1.0, 2.0)})
    with pytest.raises(InputError, match="0 < low ≤ high"):
        fit_kernel(*data, kernel=RBF(), bounds={"ridge": (2.0, 1.0)})
    with pytest.raises(InputError, match=r"`bounds` .* Got {'ridge': 0.1}"):
        fit_kernel(*data, kernel=RBF(), bounds={"ridge": 0.1})


def test_masked_keys_do_not_count(data):
    """Neither for the start (the ridge alone) nor for the search."""
    keys, values = data
    fit = fit_kernel(keys[:32], values[:32], kernel=RBF(), starts=1)
    mask = np.arange(len(keys)) < 32
    padded = fit_kernel(np.where(mask[:, None], keys, 1e9), values, mask, kernel=RBF(), starts=1)
    assert padded.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-6)
    assert float(padded.module.ridge) == pytest.approx(float(fit.module.ridge), rel=1e-3)
