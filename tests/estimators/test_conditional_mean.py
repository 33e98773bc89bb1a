"""CME attention on tables: Gaussian-process regression by another name, at home in pipelines."""

import pickle
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finetti.attention import ConditionalMean
from finetti.core.errors import InputError
from finetti.core.numerics.float64 import float64
from finetti.estimators import ConditionalMeanClassifier, ConditionalMeanRegressor
from finetti.estimators.grams import padding
from finetti.estimators.weighted_kernel import WeightedKernel
from finetti.kernels import RBF, Linear, Matern

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.stack([np.sin(X[:, 0]), 300 * X[:, 1] - 50], axis=1) + 0.1 * RNG.normal(size=(40, 2))
QUERIES = RNG.normal(size=(7, 2))
WEIGHTS = RNG.uniform(0.3, 3.0, size=len(X))
FIXED = ConditionalMeanRegressor(2.0 * RBF(0.7), ridge=0.05, fit_kernel=False)


def peer_of(model, **arguments):
    """scikit-learn's process with the kernel of a fitted model, to the last digit."""
    constant = float(np.exp(model.kernel_.log_constant))
    lengthscale = float(np.exp(model.kernel_.part.log_lengthscale))
    kernel = sk.ConstantKernel(constant) * sk.RBF(lengthscale)
    return GaussianProcessRegressor(kernel, optimizer=None, **arguments)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("targets", [Y, Y[:, 1]], ids=["two", "one"])
def test_the_same_as_a_gaussian_process(targets, normalize):
    model = clone(FIXED).set_params(normalize_y=normalize).fit(X, targets)
    peer = peer_of(model, alpha=0.05, normalize_y=normalize).fit(X, targets)
    # A Gram matrix of K(x, x) and one of K(x, y) have their own rounding.
    for asked in ({"return_std": True}, {"return_cov": True}):
        for ours, theirs in zip(
            model.predict(QUERIES, **asked), peer.predict(QUERIES, **asked), strict=True
        ):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(model.predict(QUERIES), peer.predict(QUERIES), atol=1e-8)
    assert model.log_marginal_likelihood_ == pytest.approx(
        peer.log_marginal_likelihood_value_, rel=1e-10
    )


def test_a_weight_is_a_precision():
    model = clone(FIXED).set_params(normalize_y=False).fit(X, Y[:, 0], WEIGHTS)
    peer = peer_of(model, alpha=0.05 / WEIGHTS).fit(X, Y[:, 0])
    mean, std = model.predict(QUERIES, return_std=True)
    np.testing.assert_allclose((mean, std), peer.predict(QUERIES, return_std=True), atol=1e-8)
    assert model.log_marginal_likelihood_ == pytest.approx(
        peer.log_marginal_likelihood_value_, rel=1e-10
    )
    some = np.arange(len(X)) % 3 > 0
    np.testing.assert_allclose(
        clone(FIXED).fit(X, Y, some).predict(QUERIES),
        clone(FIXED).fit(X[some], Y[some]).predict(QUERIES),
        atol=1e-8,
    )


def test_the_same_as_kernel_ridge_and_as_the_attention():
    model = clone(FIXED).set_params(kernel=RBF(), normalize_y=False).fit(X, Y, WEIGHTS)
    # Its weights multiply the loss, as ours divide the noise.
    ridge = KernelRidge(alpha=0.05, kernel="rbf", gamma=0.5).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.predict(QUERIES), ridge.predict(QUERIES), atol=1e-8)
    model = clone(model).fit(X, Y)
    with float64():
        attention = ConditionalMean(RBF(), ridge=0.05)
        mean, variance = attention.posterior(QUERIES, X, Y)
        likelihood = float(attention.log_marginal_likelihood(X, Y))
    found, std = model.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(found, mean, atol=1e-8)
    np.testing.assert_allclose(std[:, 0] ** 2, variance, atol=1e-8)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e-10)
    _, wide = model.predict(QUERIES, return_std=True, predictive=True)
    np.testing.assert_allclose(wide**2, std**2 + 0.05)


def test_the_noise_of_a_new_target_is_on_its_scale():
    """λ is in units of the normalized targets: each variance grows by λ times its own."""
    model = clone(FIXED).set_params(normalize_y=True).fit(X, Y * [1.0, 50.0])
    noise = model.ridge_ * np.var(Y * [1.0, 50.0], axis=0)
    (_, std), (_, wide) = (
        model.predict(QUERIES, return_std=True, predictive=each) for each in (False, True)
    )
    np.testing.assert_allclose(wide**2 - std**2, np.tile(noise, (len(QUERIES), 1)), rtol=1e-8)
    (_, cov), (_, wide) = (
        model.predict(QUERIES, return_cov=True, predictive=each) for each in (False, True)
    )
    np.testing.assert_allclose(
        wide - cov, np.eye(len(QUERIES))[..., None] * noise, atol=1e-10 * noise.max()
    )


@pytest.fixture(scope="module")
def fitted():
    return ConditionalMeanRegressor(n_starts=2, random_state=0).fit(X, Y)


def test_the_likelihood_is_at_its_top(fitted):
    """scikit-learn's optimizer finds no better kernel, and nobody finds better ones around."""
    kernel = sk.ConstantKernel() * sk.RBF() + sk.WhiteKernel(0.1)
    peer = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2).fit(X, Y)
    assert fitted.log_marginal_likelihood_ > peer.log_marginal_likelihood_value_ - 1e-3
    for ridge in (0.97, 1.03):
        near = ConditionalMeanRegressor(
            fitted.kernel_, ridge=ridge * fitted.ridge_, fit_kernel=False
        )
        assert near.fit(X, Y).log_marginal_likelihood_ < fitted.log_marginal_likelihood_


def test_weights_take_part_in_the_search():
    """The weighted likelihood is at its top; of equal weights only their ratio counts."""
    model = ConditionalMeanRegressor(n_starts=1, random_state=0).fit(X, Y[:, 0], WEIGHTS)
    for factor in (0.97, 1.03):
        near = ConditionalMeanRegressor(
            model.kernel_, ridge=factor * model.ridge_, fit_kernel=False
        )
        near.fit(X, Y[:, 0], WEIGHTS)
        assert near.log_marginal_likelihood_ < model.log_marginal_likelihood_
    twice = clone(model).fit(X, Y[:, 0], 2 * WEIGHTS)
    assert twice.ridge_ == pytest.approx(2 * model.ridge_, rel=1e-3)
    np.testing.assert_allclose(twice.predict(QUERIES), model.predict(QUERIES), atol=1e-3)
    ridge = ConditionalMeanRegressor(model.kernel_, fit_kernel=False).fit(X, Y[:, 0], WEIGHTS)
    assert ridge.ridge_ == pytest.approx(model.ridge_, rel=1e-2)


def test_a_given_ridge_stays():
    model = ConditionalMeanRegressor(ridge=0.5, n_starts=1, random_state=0).fit(X, Y)
    assert model.ridge_ == 0.5
    assert model.at_bound_ == ()


def test_weighted_kernel_is_its_formula():
    tokens = np.column_stack([X, np.sqrt(WEIGHTS)])
    with float64():
        for part in (Matern(), 2.0 * Linear()):
            kernel = WeightedKernel(part)
            wanted = tokens[:, -1:] * np.asarray(part.gram(X)) * tokens[:, -1]
            np.testing.assert_allclose(kernel.gram(tokens), wanted, atol=1e-12)
            np.testing.assert_allclose(kernel.gram(tokens, tokens[:3]), wanted[:, :3], atol=1e-12)
            np.testing.assert_allclose(kernel.diagonal(tokens), np.diag(wanted), atol=1e-12)
            np.testing.assert_allclose(
                float(kernel(tokens[0], tokens[1])), wanted[0, 1], atol=1e-12
            )


def test_one_row_at_a_time(fitted):
    mean, std = fitted.predict(QUERIES, return_std=True)
    for row in (0, 5):
        one = fitted.predict(QUERIES[row : row + 1], return_std=True)
        np.testing.assert_allclose(one[0][0], mean[row], rtol=1e-10)
        np.testing.assert_allclose(one[1][0], std[row], rtol=1e-8)


def test_padding_is_at_least_all_rows_and_little_more():
    for n_rows in (1, 16, 17, 200, 256, 257, 300, 1000, 1025, 5000):
        places = padding(n_rows)
        assert list(places[:n_rows]) == list(range(n_rows))
        assert places.max() == n_rows - 1
        assert len(places) <= (max(32, 2 * n_rows) if n_rows <= 256 else 1.07 * n_rows)
    assert len({len(padding(n_rows)) for n_rows in range(1, 2000)}) < 60


def test_many_rows_in_chunks(monkeypatch):
    model = clone(FIXED).fit(X, Y)
    whole = model.predict(QUERIES, return_std=True)
    monkeypatch.setattr("finetti.estimators.grams.CHUNK_ROWS", 4)
    np.testing.assert_allclose(model.predict(QUERIES, return_std=True), whole, rtol=1e-10)


def test_it_survives_a_pickle_to_the_last_digit(fitted):
    same = pickle.loads(pickle.dumps(fitted))
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(same.kernel_))
    for ours, theirs in zip(
        same.predict(QUERIES, return_std=True),
        fitted.predict(QUERIES, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_at_home_in_scikit_learn():
    search = GridSearchCV(clone(FIXED), {"kernel": [RBF(0.5), Matern(1.5)], "ridge": [0.1]}, cv=2)
    assert search.fit(X, Y[:, 0]).best_score_ > 0.5
    assert cross_val_predict(FIXED, X, Y, cv=2).shape == Y.shape
    table = pd.DataFrame(X, columns=["left", "right"])
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(FIXED))
    pipeline.fit(table, pd.Series(Y[:, 0]))
    assert list(pipeline[-1].feature_names_in_) == ["left", "right"]
    mean, std = pipeline.predict(table, return_std=True)
    assert mean.shape == std.shape == (len(X),)
    assert "ConditionalMeanRegressor" in pipeline._repr_html_()
    assert "RBF" in repr(FIXED)


LABELS = np.where(Y[:, 0] > 0, "up", "down")


def test_classes_are_signs():
    model = ConditionalMeanClassifier(RBF(), ridge=0.1, fit_kernel=False).fit(X, LABELS)
    peer = ConditionalMeanRegressor(RBF(), ridge=0.1, fit_kernel=False)
    signs = np.where(LABELS == "up", 1.0, -1.0)
    np.testing.assert_allclose(
        model.decision_function(QUERIES), peer.fit(X, signs).predict(QUERIES), atol=1e-10
    )
    assert set(model.predict(QUERIES)) <= {"up", "down"}
    assert not hasattr(model, "predict_proba")
    three = np.digitize(X[:, 0], [-0.5, 0.5])
    model.fit(X, three)
    assert model.decision_function(QUERIES).shape == (7, 3)
    assert model.score(X, three) > 0.8
    calibrated = CalibratedClassifierCV(model, cv=2).fit(X, three)
    np.testing.assert_allclose(calibrated.predict_proba(QUERIES).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="only one class"):
        clone(model).fit(X, np.ones(len(X)))
    # A fold may lack a class; scikit-learn then scores with what was seen.
    rare = np.array([0, 1] * 19 + [2, 2])
    assert set(clone(model).fit(X[:38], rare[:38]).predict(X)) <= {0, 1}


def test_a_constant_target_and_a_single_row():
    model = ConditionalMeanRegressor(RBF(), ridge=0.1, fit_kernel=False)
    np.testing.assert_allclose(model.fit(X, np.full(len(X), 0.1)).predict(QUERIES), 0.1)
    mean, std = clone(model).fit(X[:1], Y[:1]).predict(X[:1], return_std=True)
    np.testing.assert_allclose(mean, Y[:1])
    np.testing.assert_allclose(std, np.sqrt(1 - 1 / 1.1), rtol=1e-8)
    exact = clone(model).set_params(ridge=1e-14).fit(X, Y)  # below what float64 resolves
    np.testing.assert_allclose(exact.predict(X), Y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fit_kernel", [True, False])
@pytest.mark.parametrize("targets", [np.ones(1), np.full(3, 0.1), np.full((3, 2), [2.0, 7.0])])
def test_one_value_says_nothing_about_error_bars(targets, fit_kernel):
    """The likelihood is largest without any noise: predictions would seem to be certain."""
    model = ConditionalMeanRegressor(RBF(), fit_kernel=fit_kernel, n_starts=1)
    with pytest.warns(ConvergenceWarning, match="`ridge`"):
        model.fit(X[: len(targets)], targets)
    model.set_params(ridge=0.1, fit_kernel=False).fit(X[: len(targets)], targets)


def test_parameters_at_the_end_of_the_search_are_said():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, 3))
    model = ConditionalMeanRegressor(random_state=0)
    with pytest.warns(ConvergenceWarning, match="constant of ConditionalMeanRegressor"):
        model.fit(table, table[:, 0] ** 2 + table[:, 1])
    assert model.at_bound_ == ("constant",)
    classes = table[:, 0] > 0  # without error bars there is nothing to say
    classifier = ConditionalMeanClassifier(RBF(np.ones(3)), n_starts=1).fit(table, classes)
    assert classifier.at_bound_ == ("lengthscale[1]", "lengthscale[2]")


def test_what_is_wrong_is_said():
    with pytest.raises(NotFittedError):
        FIXED.predict(X)
    with pytest.raises(RuntimeError, match="At most one"):
        clone(FIXED).fit(X, Y).predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="NaN"):
        clone(FIXED).fit(np.where(X > 1, np.nan, X), Y)
    for wrong in ({"ridge": 0.0}, {"ridge": "gcv"}, {"kernel": "rbf"}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
            clone(FIXED).set_params(**wrong).fit(X, Y)
    with pytest.raises(InputError, match="`n_starts`"):
        ConditionalMeanRegressor(n_starts=0).fit(X, Y)
    with pytest.raises(ValueError, match="weights"):
        clone(FIXED).fit(X, Y, np.zeros(len(X)))
    with pytest.raises(InputError, match="Scale the columns"):
        clone(FIXED).fit(X, Y).predict([[1e200, 0.0]])


def test_parameters_of_the_kernel_are_parameters():
    model = clone(FIXED).set_params(kernel=2.0 * RBF(1.0))
    names = {name for name in model.get_params() if "__" in name}
    assert len(names) == 2
    assert model.get_params()["kernel__part__lengthscale"] == pytest.approx(1.0)
    given = model.kernel
    wanted = clone(FIXED).set_params(kernel=2.0 * RBF(0.7)).fit(X, Y).predict(QUERIES)
    found = clone(model).set_params(kernel__part__lengthscale=0.7).fit(X, Y).predict(QUERIES)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert model.kernel is given
    search = GridSearchCV(
        clone(FIXED).set_params(kernel=RBF()), {"kernel__lengthscale": [0.01, 0.7]}, cv=2
    ).fit(X, Y)
    assert search.best_params_ == {"kernel__lengthscale": 0.7}
    for wrong in ("kernel__width", "ridge__x", "nothing__x"):
        with pytest.raises(ValueError, match=f"Invalid parameter '{wrong}'"):
            clone(model).set_params(**{wrong: 1.0})
    with pytest.raises(InputError, match="`part__lengthscale`"):
        clone(model).set_params(kernel__part__lengthscale=-1.0)


def test_a_first_kernel_that_fits_badly_does_not_decide_about_the_noise():
    """One lengthscale for each of ten columns: at the start all rows look alone, without noise."""
    table, targets = make_friedman1(100, n_features=10, noise=0.5, random_state=0)
    table, targets = StandardScaler().fit_transform(table), (targets - 14) / 5
    start = sk.RBF(np.ones(10)) + sk.WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # columns without effect, at a bound
        peer = GaussianProcessRegressor(start, alpha=0).fit(table, targets)
        model = ConditionalMeanRegressor(RBF(np.ones(10)), n_starts=1, normalize_y=False)
        model.fit(table, targets)
    found = model.log_marginal_likelihood_
    assert found == pytest.approx(peer.log_marginal_likelihood_value_, abs=0.02)
    assert model.ridge_ == pytest.approx(peer.kernel_.k2.noise_level, rel=0.02)
