"""Random-feature estimators on sets: the same fit by every route, and what a user can rely on."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finetti.core.errors import InputError
from finetti.estimators import (
    AttentionKernelRegressor,
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 4, 3))
X /= np.linalg.norm(X, axis=2, keepdims=True)
Y = np.mean(X[:, 1:, 0] ** 2, axis=1) + 0.3 * X[:, 0, 1]
MODELS = [
    RandomFeatureAttentionRegressor(4, ridge=0.01, random_state=0),
    RandomFeatureAttentionRegressor(20, mean="identity", ridge=0.01, random_state=0),
    RandomFeatureMLPRegressor(16, ridge=0.01, random_state=0),
    RandomFeatureMLPRegressor(80, ridge=0.01, random_state=0),
    AttentionKernelRegressor(ridge=0.01),
]
ATTENTION = [MODELS[0], MODELS[1], MODELS[4]]


def explicit_features(model, sets):
    with jax.enable_x64(True):
        return np.asarray(model.model_.features(sets[:, 0], sets[:, 1:]))


@pytest.mark.parametrize("model", MODELS[:4])
def test_ridge_on_the_explicit_features(model):
    """Primal (fewer features than rows) and dual are scikit-learn's Ridge."""
    weights = RNG.uniform(0.5, 2.0, size=len(X))
    model = clone(model).fit(X, Y, weights)
    features = explicit_features(model, X)
    peer = Ridge(0.01, solver="svd").fit(features, Y, weights)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-8)
    np.testing.assert_allclose(model.predict(X), peer.predict(features), atol=1e-8)


@pytest.mark.parametrize("model", MODELS[:4])
def test_chunks_are_the_whole(model, monkeypatch):
    whole = clone(model).set_params(ridge="loo").fit(X, Y)
    monkeypatch.setattr("finetti.estimators.random_features.feature_ridge.CHUNK_ROWS", 16)
    parts = clone(whole).fit(X, Y)
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-8)
    np.testing.assert_allclose(parts.ridge_path_.criterion, whole.ridge_path_.criterion, rtol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_every_form_of_the_same_sets(model):
    fitted = clone(model).fit(X, Y)
    wanted = fitted.predict(X)
    flat = clone(model).set_params(n_tokens=4).fit(X.reshape(len(X), -1), Y)
    np.testing.assert_allclose(flat.predict(X.reshape(len(X), -1)), wanted, atol=1e-8)
    apart = clone(model).fit(X[:, 1:], Y, query=X[:, 0])
    np.testing.assert_allclose(apart.predict(X[:, 1:], query=X[:, 0]), wanted, atol=1e-8)
    listed = clone(model).fit(list(X), Y)
    np.testing.assert_allclose(listed.predict(list(X)), wanted, atol=1e-8)


def test_targets_without_noise_end_at_the_edge_and_say_so():
    model = RandomFeatureAttentionRegressor(4, random_state=0).fit(X, Y)
    exact = model.predict(X)
    for method in ("loo", "gcv"):
        with pytest.warns(
            ConvergenceWarning, match="best ridge of RandomFeatureAttentionRegressor"
        ):
            clone(model).set_params(ridge=method).fit(X, exact)


def test_scores_of_sets_with_their_queries_apart():
    """As of the same sets with the query as token 0; scikit-learn hands queries on if told to."""
    regressor = RandomFeatureAttentionRegressor(4, ridge=0.01, random_state=0)
    classifier = RandomFeatureAttentionClassifier(4, ridge=0.01, random_state=0)
    weights, keys, query = np.linspace(0.5, 2.0, len(X)), X[:, 1:], X[:, 0]
    for model, targets in ((regressor, Y), (classifier, np.median(Y) < Y)):
        wanted = clone(model).fit(X, targets).score(X, targets, weights)
        apart = clone(model).fit(keys, targets, query=query)
        assert apart.score(keys, targets, weights, query=query) == pytest.approx(wanted)
        wanted = cross_val_score(model, X, targets, cv=3)
        with sklearn.config_context(enable_metadata_routing=True):
            found = cross_val_score(model, keys, targets, cv=3, params={"query": query})
        np.testing.assert_allclose(found, wanted, atol=1e-8)
    with pytest.raises(InputError, match="enable_metadata_routing"):
        cross_val_score(regressor, keys, Y, cv=3, params={"query": query}, error_score="raise")


def test_a_standardized_table_needs_no_other_scale():
    """Its rows have length √30; read as they are, the accuracy is below 0.9."""
    table, labels = load_breast_cancer(return_X_y=True)
    classifier = RandomFeatureAttentionClassifier(40, random_state=0)
    model = make_pipeline(StandardScaler(), classifier).fit(table[:400], labels[:400])
    assert model.score(table[400:], labels[400:]) > 0.95
    assert classifier.token_scale_ == pytest.approx(30**-0.5)


@pytest.mark.parametrize(
    ("model", "unit"), [*zip(MODELS, [1e-9, 300, 300, 1e-9, 300], strict=True)]
)
def test_the_unit_of_tokens_does_not_matter(model, unit):
    """One scale for queries and keys, by the weights of rows, without what is masked."""
    tokens = X * np.linspace(0.5, 2.0, len(X))[:, None, None]
    weights = np.linspace(0.0, 2.0, len(X))
    there = np.full(X.shape[:2], True)
    masks = {}
    if any(model is each for each in ATTENTION):
        there = np.arange(4) < 2 + np.arange(len(X))[:, None] % 3
        masks["mask"] = there
    squares = np.sum(there * np.sum(tokens**2, axis=2), axis=1)
    scale = (weights @ there.sum(axis=1) / (weights @ squares)) ** 0.5
    wanted = clone(model).set_params(token_scale=1).fit(scale * tokens, Y, weights, **masks)
    found = clone(model).fit(unit * tokens, Y, weights, **masks)
    assert found.token_scale_ == pytest.approx(scale / unit)
    predictions = wanted.predict(scale * tokens, **masks)
    np.testing.assert_allclose(found.predict(unit * tokens, **masks), predictions, atol=1e-8)


@pytest.mark.parametrize("model", ATTENTION)
def test_keys_have_no_order_and_need_not_be_there(model):
    fitted = clone(model).fit(X, Y)
    np.testing.assert_allclose(fitted.predict(X[:, [0, 3, 1, 2]]), fitted.predict(X), atol=1e-8)
    ragged = [tokens[: 2 + row % 3] for row, tokens in enumerate(X)]
    mask = np.arange(4) < 2 + np.arange(len(X))[:, None] % 3
    padded = np.where(mask[..., None], X, np.nan)
    np.testing.assert_allclose(fitted.predict(padded, mask=mask), fitted.predict(ragged), atol=1e-8)
    np.testing.assert_allclose(fitted.predict(ragged)[3], fitted.predict(X[3:4, :2])[0], atol=1e-8)
    again = clone(model).fit(ragged, Y)
    np.testing.assert_allclose(clone(model).fit(padded, Y, mask=mask).predict(X), again.predict(X))


@pytest.mark.parametrize("model", MODELS)
def test_a_row_is_predicted_alone(model):
    fitted = clone(model).fit(X, Y)
    whole = fitted.predict(X)
    np.testing.assert_allclose(fitted.predict(X[7:8]), whole[7:8], atol=1e-8)
    np.testing.assert_allclose(fitted.predict(X[::-1]), whole[::-1], atol=1e-8)
    same = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(same.predict(X), whole)


@pytest.mark.parametrize("model", MODELS[:2])
def test_one_output_for_each_target(model):
    both = clone(model).fit(X, np.stack([Y, -2 * Y], axis=1)).predict(X)
    np.testing.assert_allclose(both[:, 1], -2 * both[:, 0], atol=1e-8)
    np.testing.assert_allclose(both[:, 0], clone(model).fit(X, Y).predict(X), atol=1e-8)


def test_at_home_in_scikit_learn():
    search = GridSearchCV(
        RandomFeatureAttentionRegressor(5, random_state=0), {"mean": ["zero", "identity"]}, cv=2
    ).fit(X, Y)
    assert search.best_score_ > 0
    assert cross_val_predict(MODELS[0], X, Y, cv=2).shape == Y.shape
    table = pd.DataFrame(X.reshape(len(X), -1)).add_prefix("x")
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(MODELS[0]))
    pipeline.set_params(randomfeatureattentionregressor__n_tokens=4).fit(table, Y)
    assert list(pipeline[-1].feature_names_in_) == list(table.columns)
    assert pipeline.predict(table).shape == Y.shape
    assert "RandomFeatureAttentionRegressor" in pipeline._repr_html_()


def test_classes_are_signs():
    labels = np.where(np.median(Y) < Y, "high", "low")
    model = RandomFeatureAttentionClassifier(30, random_state=0, ridge=1e-3).fit(X, labels)
    assert list(model.classes_) == ["high", "low"]
    assert model.score(X, labels) > 0.9
    signs = np.where(labels == "low", 1.0, -1.0)
    peer = RandomFeatureAttentionRegressor(30, random_state=0, ridge=1e-3).fit(X, signs)
    np.testing.assert_allclose(model.decision_function(X), peer.predict(X), atol=1e-10)


def test_float32_stays_float32():
    model = clone(MODELS[0]).fit(X.astype(np.float32), Y)
    assert model.model_.values.dtype == np.float32
    np.testing.assert_allclose(
        model.predict(X.astype(np.float32)), clone(MODELS[0]).fit(X, Y).predict(X), atol=0.3
    )


def test_a_constant_target_and_a_single_row():
    model = RandomFeatureAttentionRegressor(5, random_state=0)
    np.testing.assert_allclose(model.fit(X, np.full(len(X), 3.0)).predict(X), 3.0, atol=1e-8)
    one = clone(model).set_params(ridge=0.1).fit(X[:1], Y[:1])
    np.testing.assert_allclose(one.predict(X[:1]), Y[:1])
    alone = clone(model).fit(X[:, :1], Y)  # a token alone is its own key
    assert np.isfinite(alone.predict(X[:, :1])).all()


def permuted(n, seed=1):
    """n times one set, its keys in another order each: features differ by rounding alone."""
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(4, 3))
    orders = [np.r_[0, 1 + rng.permutation(3)] for _ in range(n)]
    return np.array([tokens[order] for order in orders]), rng.normal(size=n) + 5


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ridge", ["loo", "gcv", 0.0, 1e-12])
@pytest.mark.parametrize(
    ("model", "n"),
    [
        (RandomFeatureAttentionRegressor(20, random_state=0), 40),
        (RandomFeatureAttentionRegressor(5, random_state=0), 1500),
        (AttentionKernelRegressor(), 40),
    ],
)
def test_rounding_is_no_signal(model, n, ridge, dtype):
    """All sets equal as sets: nothing tells them apart, and the answer is the mean."""
    sets, y = permuted(n)
    model = clone(model).set_params(ridge=ridge).fit(sets.astype(dtype), y)
    np.testing.assert_allclose(model.predict(X.astype(dtype)), y.mean(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "model", [RandomFeatureAttentionRegressor(20, random_state=0), AttentionKernelRegressor()]
)
def test_one_set_in_several_orders_is_one_set(model, dtype):
    """Without a ridge, too: the answer is the mean of its targets, near those of one order."""
    sets, y = permuted(10)
    sets, y = np.concatenate([sets, X[:10]]).astype(dtype), np.concatenate([y, Y[:10]])
    found = clone(model).set_params(ridge=0.0).fit(sets, y).predict(sets)
    np.testing.assert_allclose(found[:10], y[:10].mean(), rtol=1e-3)
    np.testing.assert_allclose(found[10:], y[10:], atol=1e-2)


@pytest.mark.parametrize("model", MODELS[:2])
def test_a_grid_of_ridges_that_is_given_is_what_is_searched(model):
    best = clone(model).set_params(ridge="loo").fit(X, Y).ridge_
    grid = [1e6 * best, best, best / 1e6]
    found = clone(model).set_params(ridge="loo", ridges=grid).fit(X, Y)
    assert found.ridge_path_.values.tolist() == grid[::-1]
    assert found.ridge_ == best
    for wrong in ([], [0.1, 0.0], [np.nan], [[0.1]]):
        with pytest.raises(InputError, match=r"`ridges`.*a list of finite numbers > 0"):
            clone(found).set_params(ridges=wrong).fit(X, Y)


def test_what_is_wrong_is_said():
    model = clone(MODELS[0])
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 1, np.nan, X * np.nan), Y)
    with pytest.raises(InputError, match=r"`n_tokens`.*divisor of the number of columns, 12"):
        clone(model).set_params(n_tokens=5).fit(X.reshape(len(X), -1), Y)
    for n_tokens in (0, -1, 1.5):
        with pytest.raises(InputError, match=r"`n_tokens`.*a whole number ≥ 1"):
            clone(model).set_params(n_tokens=n_tokens).fit(X.reshape(len(X), -1), Y)
    with pytest.raises(ValueError, match="dim"):
        model.fit(X[:, :, :, None], Y)
    with pytest.raises(InputError, match="all of one dimension"):
        model.fit([X[0], X[1, :2, :2], *X[2:]], Y)
    with pytest.raises(InputError, match="`ridge`"):
        clone(model).set_params(ridge="cv").fit(X, Y)
    with pytest.raises(InputError, match=r'`token_scale`.*> 0 or "auto"'):
        clone(model).set_params(token_scale="rms").fit(X, Y)
    with pytest.raises(InputError, match="`token_scale`"):
        clone(model).set_params(token_scale=0).fit(X, Y)
    with pytest.raises(InputError, match="squares of these overflow"):
        clone(model).fit(1e200 * X, Y)
    with pytest.raises(InputError, match="far longer than those of the fit"):
        clone(model).fit(X, Y).predict(1e200 * X)
    with pytest.raises(InputError, match="true at token 0"):
        model.fit(X, Y, mask=np.arange(4) > np.zeros((len(X), 1)))
    fitted = clone(model).fit(X, Y)
    with pytest.raises(InputError, match=r"tokens of 2 features, but .* is expecting 3"):
        fitted.predict(X[..., :2])
    with pytest.raises(InputError, match="one size"):
        clone(MODELS[2]).fit([X[0, :2], *X[1:]], Y)
