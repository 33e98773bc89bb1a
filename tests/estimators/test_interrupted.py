"""A fit that fails or is interrupted changes nothing; what is given twice is read the same."""

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as RBF_OF_SKLEARN

from finetti.core.errors import InputError
from finetti.estimators import (
    ConditionalMeanRegressor,
    ConstrainedAttentionRegressor,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
    random_features,
)
from finetti.kernels import RBF
from finetti.kernels.kernel import in_float64

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4, 3)) / 3**0.5
Y = np.mean(X[:, 1:, 0] ** 2, axis=1)


def interrupted(monkeypatch, after):
    """Ctrl-C in the sums of some rows."""
    original = random_features.over_chunks

    def over_chunks(*args):
        for number, part in enumerate(original(*args)):
            if number == after:
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(random_features, "over_chunks", over_chunks)
    monkeypatch.setattr(random_features, "CHUNK_ROWS", 16)


def test_rows_of_an_interrupted_part_do_not_count(monkeypatch):
    model = RandomFeatureAttentionRegressor(3, ridge=0.01, token_scale=1, random_state=0)
    whole = clone(model).fit(X, Y)
    model.partial_fit(X[:24], Y[:24])
    before = model.predict(X)
    with monkeypatch.context() as patch:
        interrupted(patch, after=1)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[24:], Y[24:])
    np.testing.assert_array_equal(model.predict(X), before)
    again = model.partial_fit(X[24:], Y[24:]).predict(X)
    np.testing.assert_allclose(again, whole.predict(X), atol=1e-8)


def test_a_fit_that_fails_leaves_what_was_there():
    def broken():
        yield X[:24], Y[:24]
        raise OSError("the disk is gone")

    model = RandomFeatureAttentionRegressor(3, ridge=0.01, random_state=0)
    with pytest.raises(OSError, match="disk"):
        model.fit(broken())
    with pytest.raises(NotFittedError):
        model.predict(X)
    wanted = model.fit(X, Y).predict(X)
    with pytest.raises(OSError, match="disk"):
        model.fit(broken())
    np.testing.assert_array_equal(model.predict(X), wanted)
    assert set(vars(model.fit(X, Y))) == set(vars(RandomFeatureAttentionRegressor().fit(X, Y)))


@pytest.mark.parametrize(
    "model",
    [
        RandomFeatureAttentionRegressor(5, ridge=0.01, random_state=0),
        RandomFeatureMLPRegressor(20, ridge=0.01, random_state=0),
        ConstrainedAttentionRegressor(5, norm_sum=1.0, random_state=0),
    ],
)
def test_one_seed_is_one_draw_in_both_precisions(model):
    wanted = model.fit(X, Y).predict(X)
    found = model.fit(X.astype(np.float32), Y).predict(X.astype(np.float32))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("lengthscale", [0.7, 100.0])
def test_parameters_are_those_that_were_written(lengthscale):
    """JAX keeps them in single precision, unless told otherwise."""
    table, scale = lengthscale * X[:, 0], 0.01
    with jax.enable_x64(False):
        kernel = RBF(lengthscale)
    assert kernel.log_lengthscale.dtype == np.float32
    model = ConditionalMeanRegressor(kernel, ridge=scale, fit_kernel=False, normalize_y=False)
    mean, std = model.fit(table, Y).predict(table, return_std=True)
    peer = GaussianProcessRegressor(RBF_OF_SKLEARN(lengthscale), alpha=scale, optimizer=None)
    wanted, bar = peer.fit(table, Y).predict(table, return_std=True)
    np.testing.assert_allclose(mean, wanted, atol=1e-11)
    np.testing.assert_allclose(std, bar, atol=1e-11)


def test_every_written_lengthscale_comes_back():
    """Two decimals near 1, where rounding moves the logarithm most, and sizes far from it."""
    written = np.r_[np.arange(50, 201) / 100, [1e-3, 0.8184, 0.8172, 1.3828, 123.45, 1e6]]
    with jax.enable_x64(False):
        kernel = RBF(written)
    assert kernel.log_lengthscale.dtype == np.float32
    np.testing.assert_allclose(np.exp(in_float64(kernel).log_lengthscale), written, rtol=4e-15)


def test_one_row_has_no_curve_and_is_its_own_mean():
    model = RandomFeatureAttentionRegressor(5, ridge="gcv", random_state=0).fit(X[:1], Y[:1])
    np.testing.assert_allclose(model.predict(X[:1]), Y[:1])
    assert model.ridge_ == model.ridge_path_.ridges.max()


def test_sets_come_in_the_form_of_the_fit():
    model = RandomFeatureAttentionRegressor(3, ridge=0.01, random_state=0)
    with pytest.raises(InputError, match="with `query` apart"):
        model.fit(X[:, 1:], Y, query=X[:, 0]).predict(X[:, 1:])
    model.fit(X, Y)
    with pytest.raises(InputError, match="without `query`"):
        model.predict(X[:, 1:], query=X[:, 0])
    with pytest.raises(InputError, match=r"X\[None\]"):
        model.predict(X[0])
    with pytest.raises(InputError, match=r'`mean`.*"zero", "identity" or a matrix'):
        RandomFeatureAttentionRegressor(3, mean="one").fit(X, Y)
    long = RandomFeatureAttentionRegressor(3, activation="exponential", token_scale=100)
    with pytest.raises(InputError, match="`token_scale` is too large"):
        long.fit(X, Y)
