"""Rows in chunks, mapped files, iterators and on other machines: one and the same fit."""

import pickle
import subprocess
import sys
import tracemalloc

import dask
import dask.array
import numpy as np
import pytest
from sklearn.base import clone

from finetti.core.errors import InputError
from finetti.estimators import (
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
)

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


def chunks_of(y):
    return [(X[cut], y[cut], WEIGHTS[cut]) for cut in CUTS]


class ReadAgain:
    """Chunks that are made anew at every pass, as a loader of files does."""

    def __iter__(self):
        yield from chunks_of(Y)


def same(found, wanted, rtol=1e-8):
    scale = np.abs(wanted.coef_).max()
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=rtol * scale)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, atol=rtol)
    assert found.ridge_ == pytest.approx(wanted.ridge_, rel=1e-9)


def mapped(folder, name, array):
    np.save(folder / name, array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("model", REGRESSORS)
def test_every_route_is_the_whole(model, ridge, tmp_path, monkeypatch):
    model = clone(model).set_params(ridge=ridge)
    whole = clone(model).fit(X, Y, WEIGHTS)
    # At 1e-14 coefficients of nearly dependent features are large and rounding of the draw shows.
    rtol = 1e-8 if ridge != 1e-14 else 1e-5
    same(clone(model).fit(chunks_of(Y)), whole, rtol)
    same(clone(model).fit(ReadAgain()), whole, rtol)
    monkeypatch.setattr("finetti.estimators.random_features.dask_blocks.MAPPED_ROWS", 16)
    files = (mapped(tmp_path, name, part) for name, part in [("X", X), ("y", Y), ("s", WEIGHTS)])
    same(clone(model).fit(*files), whole, rtol)
    parts = (dask.array.from_array(part, chunks=16) for part in (X, Y, WEIGHTS))
    same(clone(model).fit(*parts), whole, rtol)
    delayed = [dask.delayed(chunk) for chunk in chunks_of(Y)]
    same(clone(model).fit(delayed), whole, rtol)
    # Rows that are gone after one pass leave the other criterion, and a scale known beforehand.
    model.set_params(token_scale=whole.token_scale_)
    if ridge == "loo":
        whole = clone(model).set_params(ridge="gcv").fit(X, Y, WEIGHTS)
    same(clone(model).fit(iter(chunks_of(Y))), whole, rtol)
    added = clone(model)
    for chunk in chunks_of(Y):
        added = pickle.loads(pickle.dumps(added.partial_fit(*chunk)))
    same(added, whole, rtol)


def test_rows_that_are_read_once_have_the_scale_of_the_first_chunk():
    model = RandomFeatureAttentionRegressor(4, ridge=0.01, random_state=0)
    first = clone(model).fit(X[:16], Y[:16], WEIGHTS[:16]).token_scale_
    wanted = clone(model).set_params(token_scale=first).fit(X, Y, WEIGHTS)
    assert clone(model).fit(X, Y, WEIGHTS).token_scale_ != pytest.approx(first, rel=1e-3)
    added = clone(model)
    for chunk in chunks_of(Y):
        added.partial_fit(*chunk)
    for found in (added, clone(model).fit(iter(chunks_of(Y)))):
        assert found.token_scale_ == first
        same(found, wanted)


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
def test_classes_of_all_chunks(labels):
    model = RandomFeatureAttentionClassifier(4, ridge="gcv", random_state=0)
    whole = clone(model).fit(X, labels, WEIGHTS)
    chunks = chunks_of(labels)
    for found in (
        clone(model).fit(chunks),
        clone(model).fit(dask.array.from_array(X, chunks=16), labels, WEIGHTS),
        clone(model).fit([dask.delayed(chunk) for chunk in chunks]),
    ):
        same(found, whole)
        np.testing.assert_array_equal(found.predict(X), whole.predict(X))
    added = clone(model).set_params(token_scale=whole.token_scale_)
    for x, y, s in chunks:
        added.partial_fit(x, y, classes=np.unique(labels), sample_weight=s)
    same(added, whole)


def test_on_other_processes():
    """A real cluster: the chunks lie on its workers, and sums come back."""
    from distributed import Client, LocalCluster

    fields = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    model = clone(REGRESSORS[2])
    with LocalCluster(**fields) as cluster, Client(cluster):
        parts = [dask.array.from_array(part, chunks=16) for part in (X, Y, WEIGHTS)]
        found = clone(model).fit(*dask.persist(*parts))
    same(found, clone(model).fit(X, Y, WEIGHTS))


def test_float32_products_where_the_ridge_allows_them():
    """In float32 the answer has the digits of float32, and a small ridge is still resolved."""
    small = X.astype(np.float32)
    for ridge, rtol in [(10.0, 1e-5), (1e-3, 1e-6), (1e-14, 1e-3)]:
        model = RandomFeatureAttentionRegressor(4, ridge=ridge, token_scale=1, random_state=0)
        chunks = [(small[cut], Y[cut]) for cut in CUTS]
        features = clone(model).fit(small, Y).model_.features(small[:, 0], small[:, 1:])
        features = np.asarray(features, np.float64)
        centered = features - features.mean(axis=0)
        left, values, right = np.linalg.svd(centered, full_matrices=False)
        wanted = right.T @ (values / (values**2 + ridge) * (left.T @ (Y - Y.mean())))
        found = clone(model).fit(iter(chunks)).coef_
        np.testing.assert_allclose(found, wanted, atol=rtol * np.abs(wanted).max())


def test_memory_does_not_grow_with_the_rows():
    def peak(n_chunks):
        model = RandomFeatureAttentionRegressor(4, ridge=0.1, random_state=0)
        tracemalloc.start()
        model.fit((X, Y) for _ in range(n_chunks))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)  # compiles
    assert peak(100) < 1.5 * peak(5)


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


def test_what_one_pass_cannot_do_is_said():
    classifier = RandomFeatureAttentionClassifier(4, ridge=0.1)
    with pytest.raises(InputError, match="must know all classes"):
        classifier.fit(iter(chunks_of(LABELS)))
    with pytest.raises(ValueError, match="classes must be passed"):
        classifier.partial_fit(X, LABELS)
    with pytest.raises(ValueError, match="none of 0, 1"):
        clone(classifier).partial_fit(X, LABELS, classes=[0, 1])


def test_what_is_no_chunk_is_said():
    model = RandomFeatureAttentionRegressor(4, ridge=0.1)
    with pytest.raises(ValueError, match="requires y"):
        model.fit(X)
    with pytest.raises(ValueError, match="requires y"):
        model.fit(dask.array.from_array(X, chunks=16))
    with pytest.raises(InputError, match="yields nothing"):
        model.fit(iter([]))
    with pytest.raises(InputError, match=r"must be \(X, y\).*Got ndarray"):
        model.fit(iter([X]))
    with pytest.raises(InputError, match="weights with each chunk"):
        model.fit(iter(chunks_of(Y)), sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(dask.array.from_array(X, chunks=16), Y[:5])
    with pytest.raises(InputError, match="targets of one shape"):
        model.fit([(X[:8], Y[:8]), (X[8:], np.stack([Y[8:], Y[8:]], axis=1))])


def test_dask_is_not_imported():
    code = (
        "import sys, numpy as np; from finetti.estimators import RandomFeatureMLPRegressor as R;"
        "x = np.ones((4, 2)); R(2, ridge=1.0).fit(x, x[:, 0]).predict(x);"
        "R(2, ridge=1.0).fit(iter([(x, x[:, 0])])); assert 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
