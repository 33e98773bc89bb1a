"""Nadaraya–Watson regression: its formula, brute force, and rows without neighbors."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finetti.attention import KernelSmoother, Softmax
from finetti.core.errors import InputError, UnsupportedError
from finetti.core.numerics.float64 import float64
from finetti.estimators import KernelSmootherRegressor
from finetti.estimators.grams import median_distance
from finetti.kernels import RBF, Exponential, Linear, Matern, Polynomial

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.stack([np.sin(X[:, 0]), 1e3 + X[:, 1]], axis=1) + 0.1 * RNG.normal(size=(30, 2))
WEIGHTS = RNG.uniform(0.3, 3.0, size=len(X))
GRID = np.array([0.15, 0.3, 0.6, 2.0])
QUERIES = RNG.normal(size=(7, 2))


def scores(kind, queries, rows, bandwidth):
    """K(x/h, y/h) by hand."""
    squares = np.sum((queries[:, None] - rows) ** 2, axis=2) / bandwidth**2
    roots = np.sqrt(3 * squares)
    by_hand = {
        "rbf": np.exp(-squares / 2),
        "matern": (1 + roots) * np.exp(-roots),
        "exponential": np.exp(queries @ rows.T / bandwidth**2),
    }
    return by_hand[kind]


KERNELS = {"rbf": RBF(), "matern": Matern(1.5), "exponential": Exponential()}


@pytest.mark.parametrize("kind", KERNELS)
def test_it_is_its_formula(kind):
    model = KernelSmootherRegressor(KERNELS[kind], bandwidth=0.6).fit(X, Y, WEIGHTS)
    by_hand = WEIGHTS * scores(kind, QUERIES, X, 0.6)
    wanted = by_hand @ Y / by_hand.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(QUERIES), wanted, rtol=1e-10)


@pytest.mark.parametrize("kind", KERNELS)
def test_leave_one_out_is_brute_force(kind):
    path = KernelSmootherRegressor(KERNELS[kind], bandwidths=GRID).fit(X, Y, WEIGHTS)
    criterion = path.bandwidth_path_.criterion
    for bandwidth, value in zip(GRID, criterion, strict=True):
        total = 0.0
        for out in range(len(X)):
            kept = np.arange(len(X)) != out
            by_hand = WEIGHTS[kept] * scores(kind, X[out : out + 1], X[kept], bandwidth)[0]
            error = by_hand @ Y[kept] / by_hand.sum() - Y[out]
            total += WEIGHTS[out] * np.mean(error**2)
        assert value == pytest.approx(total / WEIGHTS.sum(), rel=1e-8)
    assert path.bandwidth_ == GRID[criterion.argmin()]


def test_it_is_the_attention():
    with float64():
        smoother = np.asarray(KernelSmoother(RBF())(QUERIES, X, Y))
        softmax = np.asarray(Softmax(scale=0.25)(QUERIES, X, Y))
    ours = KernelSmootherRegressor(bandwidth=1.0).fit(X, Y).predict(QUERIES)
    np.testing.assert_allclose(ours, smoother, rtol=1e-10)
    # The temperature of softmax attention is h².
    ours = KernelSmootherRegressor(Exponential(), bandwidth=2.0).fit(X, Y).predict(QUERIES)
    np.testing.assert_allclose(ours, softmax, rtol=1e-10)


def test_chunks_are_the_whole(monkeypatch):
    whole = KernelSmootherRegressor(bandwidths=GRID).fit(X, Y, WEIGHTS)
    monkeypatch.setattr("finetti.estimators.grams.CHUNK_ROWS", 8)
    parts = clone(whole).fit(X, Y, WEIGHTS)
    np.testing.assert_allclose(
        parts.bandwidth_path_.criterion, whole.bandwidth_path_.criterion, rtol=1e-10
    )
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-10)


def test_limits_of_the_bandwidth():
    """Narrow: the nearest row. Wide: the mean."""
    nearest = ((QUERIES[:, None] - X) ** 2).sum(axis=2).argmin(axis=1)
    narrow = KernelSmootherRegressor(bandwidth=1e-4).fit(X, Y)  # all weights underflow
    np.testing.assert_allclose(narrow.predict(QUERIES), Y[nearest], rtol=1e-12)
    wide = KernelSmootherRegressor(bandwidth=1e6).fit(X, Y)
    np.testing.assert_allclose(wide.predict(QUERIES), np.tile(Y.mean(axis=0), (7, 1)), rtol=1e-9)


def test_a_row_without_neighbors_gets_the_mean_and_a_warning():
    model = KernelSmootherRegressor(Polynomial(2, bias=0.0), bandwidth=1.0).fit(X, Y[:, 0])
    with pytest.warns(UserWarning, match="1 of 2 rows"):
        found = model.predict(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert found[0] == pytest.approx(Y[:, 0].mean())
    assert np.isfinite(found).all()


def test_the_bandwidth_is_refined_between_grid_points():
    """As good as a grid a hundred times finer; a grid that is given is not left."""
    model = KernelSmootherRegressor().fit(X, Y[:, 0])
    path = model.bandwidth_path_
    assert (np.diff(path.bandwidths) > 0).all()
    place = path.best
    fine = np.geomspace(*path.bandwidths[[place - 1, place + 1]], 31)
    wanted = KernelSmootherRegressor(bandwidths=fine).fit(X, Y[:, 0]).bandwidth_path_
    assert path.criterion[place] <= wanted.criterion.min() * (1 + 1e-6)
    coarse = np.geomspace(1e-2, 1e1, 31) * median_distance(X)
    assert np.abs(np.log(coarse / model.bandwidth_)).min() > 1e-3
    given = KernelSmootherRegressor(bandwidths=GRID).fit(X, Y[:, 0])
    assert given.bandwidth_ in GRID


def test_the_path_is_shown():
    path = KernelSmootherRegressor(bandwidths=[3.0, 0.1]).fit(X, Y[:, 0]).bandwidth_path_
    assert list(path.bandwidths) == [0.1, 3.0]
    assert path.at_edge
    assert "edge" in str(path)
    assert "bandwidth" in str(path.plot())


def test_at_home_in_scikit_learn():
    table = pd.DataFrame(X, columns=["left", "right"])
    pipeline = make_pipeline(
        StandardScaler().set_output(transform="pandas"), KernelSmootherRegressor(bandwidth=0.3)
    )
    search = GridSearchCV(pipeline, {"kernelsmootherregressor__bandwidth": [0.3, 1.0]}, cv=2)
    search.fit(table, Y[:, 0])
    best = search.best_estimator_
    assert list(best[-1].feature_names_in_) == ["left", "right"]
    same = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(same.predict(table), best.predict(table))
    assert cross_val_predict(best, table, Y, cv=2).shape == Y.shape
    assert "KernelSmootherRegressor" in best._repr_html_()


@pytest.mark.parametrize("size", [1e-145, 1e145])
def test_units_do_not_matter(size):
    wanted = KernelSmootherRegressor().fit(X, Y).predict(QUERIES)
    found = KernelSmootherRegressor().fit(size * X, Y).predict(size * QUERIES)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_constant_target_and_a_single_row():
    model = KernelSmootherRegressor()
    np.testing.assert_allclose(model.fit(X, np.full(len(X), 0.1)).predict(QUERIES), 0.1)
    np.testing.assert_allclose(model.fit(X[:1], Y[:1]).predict(QUERIES), np.tile(Y[:1], (7, 1)))
    same = np.ones((5, 2))
    np.testing.assert_allclose(model.fit(same, np.arange(5.0)).predict(same), 2.0)


def test_what_is_wrong_is_said():
    model = KernelSmootherRegressor()
    with pytest.raises(UnsupportedError, match="both signs"):
        clone(model).set_params(kernel=Linear()).fit(X, Y)
    for wrong in (
        {"bandwidth": 0.0},
        {"bandwidth": "gcv"},
        {"bandwidths": []},
        {"bandwidths": [[1.0, 2.0]]},
        {"bandwidths": [1.0, np.nan]},
        {"kernel": "rbf"},
    ):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
            clone(model).set_params(**wrong).fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 1, np.nan, X), Y)
    for size in (1e-200, 1e200):  # whose squares are no numbers
        with pytest.raises(InputError, match="`bandwidth`"):
            clone(model).set_params(bandwidth=size).fit(X, Y)
        with pytest.raises(InputError, match="`bandwidths`"):
            clone(model).set_params(bandwidths=[1.0, size]).fit(X, Y)
    with pytest.raises(InputError, match="Scale the columns"):
        model.fit(1e-160 * X, Y)
