"""Rows in parts, added one after the other or where a Dask array has them: one and the same fit."""

import pickle
import subprocess
import sys
import tracemalloc

import dask
import dask.array
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from finetti.core.errors import InputError
from finetti.estimators import (
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
)
from finetti.estimators.random_features import feature_ridge
from finetti.estimators.random_features.gram_sums import GramSums

# Targets without noise want the least ridge that there is.
pytestmark = pytest.mark.filterwarnings("ignore:The best ridge of")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4, 3))
Y = np.mean(X[:, 1:, 0] ** 2, axis=1) + 0.3 * X[:, 0, 1]
LABELS = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
WEIGHTS = RNG.uniform(0.5, 2.0, size=len(X))
CUTS = [slice(0, 16), slice(16, 32), slice(32, 48), slice(48, 64)]
REGRESSORS = [
    RandomFeatureAttentionRegressor(4, random_state=0),  # 16 features: primal in memory, too
    RandomFeatureAttentionRegressor(20, random_state=0),  # 80 features: dual in memory
    RandomFeatureMLPRegressor(16, random_state=0),
]
RIDGES = ["loo", "gcv", 0.01, 1e-14]


def same(found, wanted, rtol=1e-8):
    scale = np.abs(wanted.coef_).max()
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=rtol * scale)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, atol=rtol)
    assert found.ridge_ == pytest.approx(wanted.ridge_, rel=1e-9)


def blocks(*arrays):
    return [dask.array.from_array(each, chunks=16) for each in arrays]


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("model", REGRESSORS)
@pytest.mark.filterwarnings("ignore:.*nearly dependent features are left out")
def test_parts_are_the_whole(model, ridge):
    model = clone(model).set_params(ridge=ridge)
    whole = clone(model).fit(X, Y, WEIGHTS)
    # At 1e-14 coefficients of nearly dependent features are large and rounding of the draw shows.
    rtol = 1e-8 if ridge != 1e-14 else 1e-5
    same(clone(model).fit(*blocks(X, Y, WEIGHTS)), whole, rtol)
    # Rows that are gone leave the other criterion, and a scale known beforehand.
    model.set_params(token_scale=whole.token_scale_)
    if ridge == "loo":
        whole = clone(model).set_params(ridge="gcv").fit(X, Y, WEIGHTS)
    added = clone(model)
    for cut in CUTS:
        added = pickle.loads(pickle.dumps(added.partial_fit(X[cut], Y[cut], WEIGHTS[cut])))
    if ridge != 1e-14 or added.coef_.size < len(X):  # sums leave out what 64 rows cannot tell
        same(added, whole, rtol)
    np.testing.assert_allclose(added.predict(X), whole.predict(X), atol=1e-4)


def test_the_scale_is_that_of_the_first_part():
    model = RandomFeatureAttentionRegressor(4, ridge=0.01, random_state=0)
    first = clone(model).fit(X[:16], Y[:16], WEIGHTS[:16]).token_scale_
    wanted = clone(model).set_params(token_scale=first).fit(X, Y, WEIGHTS)
    assert clone(model).fit(X, Y, WEIGHTS).token_scale_ != pytest.approx(first, rel=1e-3)
    for cut in CUTS:
        model.partial_fit(X[cut], Y[cut], WEIGHTS[cut])
    assert model.token_scale_ == first
    same(model, wanted)


def test_flat_tables_and_several_targets():
    model = RandomFeatureAttentionRegressor(4, ridge="gcv", n_tokens=4, random_state=0)
    table, targets = X.reshape(len(X), -1), np.stack([Y, Y**2], axis=1)
    whole = clone(model).fit(table, targets)
    # Chunks that are cut through rows and columns, and a y that is not cut at all.
    found = clone(model).fit(dask.array.from_array(table, chunks=(16, 5)), targets)
    same(found, whole)
    np.testing.assert_allclose(found.predict(table), whole.predict(table), atol=1e-8)
    assert found.n_features_in_ == 12


@pytest.mark.parametrize("labels", [LABELS, np.where(LABELS > 0, "yes", "no")])
def test_classes_of_all_parts(labels):
    model = RandomFeatureAttentionClassifier(4, ridge="gcv", random_state=0)
    whole = clone(model).fit(X, labels, WEIGHTS)
    found = clone(model).fit(dask.array.from_array(X, chunks=16), labels, WEIGHTS)
    same(found, whole)
    np.testing.assert_array_equal(found.predict(X), whole.predict(X))
    added = clone(model).set_params(token_scale=whole.token_scale_)
    for cut in CUTS:
        known = np.unique(labels)
        added.partial_fit(X[cut], labels[cut], classes=known, sample_weight=WEIGHTS[cut])
    same(added, whole)


def test_on_other_processes():
    """A real cluster: the blocks lie on its workers, and sums come back."""
    from distributed import Client, LocalCluster

    fields = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    model = clone(REGRESSORS[2])
    with LocalCluster(**fields) as cluster, Client(cluster):
        found = clone(model).fit(*dask.persist(*blocks(X, Y, WEIGHTS)))
    same(found, clone(model).fit(X, Y, WEIGHTS))


def test_float32_products_where_the_ridge_allows_them():
    """In float32 the answer has the digits of float32, and a small ridge is still resolved."""
    small = X.astype(np.float32)
    for ridge, rtol in [(10.0, 1e-5), (1e-3, 1e-6), (1e-12, 1e-3)]:
        model = RandomFeatureAttentionRegressor(4, ridge=ridge, token_scale=1, random_state=0)
        features = clone(model).fit(small, Y).model_.features(small[:, 0], small[:, 1:])
        features = np.asarray(features, np.float64)
        centered = features - features.mean(axis=0)
        left, values, right = np.linalg.svd(centered, full_matrices=False)
        wanted = right.T @ (values / (values**2 + ridge) * (left.T @ (Y - Y.mean())))
        for cut in CUTS:
            model.partial_fit(small[cut], Y[cut])
        np.testing.assert_allclose(model.coef_, wanted, atol=rtol * np.abs(wanted).max())


def test_memory_does_not_grow_with_the_rows():
    def peak(n_parts):
        model = RandomFeatureAttentionRegressor(4, ridge=0.1, random_state=0)
        tracemalloc.start()
        for _ in range(n_parts):
            model.partial_fit(X, Y)
        model.predict(X[:1])
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)  # compiles
    assert peak(100) < 1.5 * peak(5)


def test_a_part_is_added_without_solving_or_copying(monkeypatch):
    solved = []
    solve = GramSums.solve
    monkeypatch.setattr(GramSums, "solve", lambda *given: solved.append(1) or solve(*given))
    model = RandomFeatureAttentionRegressor(4, ridge=0.1, random_state=0)
    model.partial_fit(X[:16], Y[:16])
    sums = model._sums.upper
    for cut in CUTS[1:]:
        model.partial_fit(X[cut], Y[cut])
    assert model._sums.upper is sums
    assert not solved
    model.predict(X)
    assert model.norms_.squared_norm > 0
    assert len(solved) == 1
    before = model.coef_
    assert not np.array_equal(model.partial_fit(X[:8], Y[:8] + 1).coef_, before)
    assert len(solved) == 2


def test_a_part_that_is_refused_does_not_count():
    model = RandomFeatureAttentionRegressor(4, ridge=0.1, random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    before = model.partial_fit(X, Y).predict(X)
    for wrong, y, said in [
        (X[..., :2], Y, "tokens of 2 features"),
        (X, np.stack([Y, Y], axis=1), "targets of one shape"),
        (X[:8], Y, "inconsistent"),
    ]:
        with pytest.raises(ValueError, match=said):
            model.partial_fit(wrong, y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_after_a_fit_that_failed_there_is_none(monkeypatch):
    """Rather than one whose heads are not those that its coefficients belong to."""
    model = RandomFeatureAttentionRegressor(4, ridge=0.1).fit(X, Y)

    def interrupted(*given):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(feature_ridge, "over_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_partial_fit_after_fit_starts_anew():
    """And says so; scikit-learn calls it without ``classes``, which the fit has seen."""
    regressor = clone(REGRESSORS[0])
    classifier = RandomFeatureAttentionClassifier(4, random_state=0)
    (first, second), fields = CUTS[:2], {"classes": np.unique(LABELS)}
    for model, y, classes in [(regressor, Y, {}), (classifier, LABELS, fields)]:
        wanted = clone(model).partial_fit(X[first], y[first], **classes)
        found = clone(model).fit(X, y)
        with pytest.warns(UserWarning, match=r"starts anew, and the earlier rows no longer count"):
            found.partial_fit(X[first], y[first])
        same(found, wanted)
        same(found.partial_fit(X[second], y[second]), wanted.partial_fit(X[second], y[second]))


def test_what_is_missing_is_said():
    classifier, model = RandomFeatureAttentionClassifier(4), RandomFeatureAttentionRegressor(4)
    with pytest.raises(ValueError, match="classes must be passed"):
        classifier.partial_fit(X, LABELS)
    with pytest.raises(ValueError, match="none of 0, 1"):
        clone(classifier).partial_fit(X, LABELS, classes=[0, 1])
    for rows in (X, *blocks(X)):
        with pytest.raises(ValueError, match="requires y"):
            model.fit(rows)
    (rows,) = blocks(X)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(rows, Y[:5])
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        model.fit(rows[rows[:, 0, 0] > 0], Y)


def test_dask_is_not_imported():
    code = (
        "import sys, numpy as np; from finetti.estimators import RandomFeatureMLPRegressor as R;"
        "x = np.ones((4, 2)); R(2, ridge=1.0).fit(x, x[:, 0]).predict(x);"
        "assert 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
