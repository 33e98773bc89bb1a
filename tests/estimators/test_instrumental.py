"""Two-stage regression: right where ordinary regression is not, and silent about nothing."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from finetti.core.errors import InputError
from finetti.estimators import InstrumentalRegressor
from finetti.estimators.instruments.first_stage import centered_features, strength
from finetti.estimators.ridge_system import decompose_gram
from finetti.kernels import RBF

EFFECTS = np.array([2.0, -1.0, 0.5])


def world(seed, n=400):
    """Two endogenous columns, an exogenous one, and noise that grows with an instrument."""
    rng = np.random.default_rng(seed)
    z, hidden = rng.normal(size=(n, 4)), rng.normal(size=n)
    x = np.stack(
        [
            z @ [1.0, 0.5, 0.2, 0.0] + 1.5 * hidden,
            z @ [0.2, -1.0, 0.5, 0.3] - hidden + rng.normal(size=n),
            z[:, 2],
        ],
        axis=1,
    )
    noise = 3 * hidden + rng.normal(size=n) * (1 + np.abs(z[:, 0]))
    return x, x @ EFFECTS + 7 + noise, z


def test_within_three_standard_errors_where_least_squares_is_not():
    """12 seeds × 3 effects: 0.1 of them are expected outside by chance; least squares always is."""
    scores = []
    for seed in range(12):
        x, y, z = world(seed)
        model = InstrumentalRegressor(random_state=0).fit(x, y, instruments=z)
        scores.append((model.coef_ - EFFECTS) / model.standard_errors_)
        ordinary = InstrumentalRegressor().fit(x, y)
        biased = (ordinary.coef_ - EFFECTS) / ordinary.standard_errors_
        assert abs(biased[0]) > 3
        assert model.intercept_ == pytest.approx(7, abs=1.5)
    scores = np.array(scores)
    assert np.abs(scores).max() < 3
    # The standard errors are neither too small nor too large: χ² with 36 degrees of freedom.
    assert 15 < np.sum(scores**2) < 70


def explicit(x, y, z, parts):
    """Out-of-fold instruments, row by row, and the sandwich."""
    design, instruments = np.column_stack([np.ones(len(x)), x]), np.empty((len(x), 2))
    stage = np.column_stack([np.ones(len(x)), z])
    for fitted, predicted in parts:
        guess = np.linalg.lstsq(stage[fitted], design[fitted], rcond=None)[0]
        instruments[predicted] = stage[predicted] @ guess
    inverse = np.linalg.inv(instruments.T @ design)
    coefficients = inverse @ instruments.T @ y
    residual = y - design @ coefficients
    covariance = inverse @ (instruments.T * residual**2) @ instruments @ inverse.T
    return coefficients, np.sqrt(np.diag(covariance) * len(x) / (len(x) - 2))


def test_the_linear_answer_by_hand():
    x, y, z = world(0, n=60)
    x, z = x[:, :1], z[:, :2]
    model = InstrumentalRegressor(random_state=3).fit(x, y, instruments=z)
    parts = KFold(5, shuffle=True, random_state=3).split(x)
    coefficients, errors = explicit(x, y, z, parts)
    np.testing.assert_allclose([model.intercept_, *model.coef_], coefficients, rtol=1e-8)
    np.testing.assert_allclose(model.standard_errors_, errors[1:], rtol=1e-8)


def test_the_first_stage_f_by_hand():
    x, _, z = world(0)
    full = np.column_stack([np.ones(len(x)), z])
    # Of one regressor: the sums of squares with and without the excluded instruments.
    without = full[:, [0, 3]]
    squares = [
        np.sum((x[:, 0] - part @ np.linalg.lstsq(part, x[:, 0], rcond=None)[0]) ** 2)
        for part in (without, full)
    ]
    wanted = (squares[0] - squares[1]) / 3 / (squares[1] / (len(x) - 5))
    found = strength(x[:, [0, 2]], z, np.ones(len(x)))
    assert found.f_statistic == pytest.approx(wanted, rel=1e-8)
    assert found.each[1] == np.inf
    assert list(found.is_exogenous) == [False, True]
    # Two that the same combination of instruments moves: each seems strong, together they are not.
    rng = np.random.default_rng(0)
    twins = z[:, :1] + rng.normal(size=(len(z), 2))
    found = strength(twins, z, np.ones(len(z)))
    assert found.each.min() > 50
    assert found.f_statistic < 5
    with pytest.raises(InputError, match="weak"):
        InstrumentalRegressor().fit(twins, twins.sum(axis=1), instruments=z)


def test_a_weight_repeats_a_row_in_the_first_stage():
    """Up to the degrees of freedom, which count rows."""
    x, _, z = world(0)
    count = np.random.default_rng(1).integers(1, 4, size=len(x))
    weighted = strength(x[:, [0, 2]], z, count.astype(float))
    repeated = strength(
        *(np.repeat(part, count, axis=0) for part in (x[:, [0, 2]], z)), np.ones(count.sum())
    )
    ratio = (len(x) - 5) / (count.sum() - 5)
    assert weighted.f_statistic == pytest.approx(ratio * repeated.f_statistic, rel=1e-8)


def test_weak_instruments_are_refused_with_the_number():
    x, y, z = world(0)
    weak = z[:, 3:]  # does not move the first column
    found = strength(x[:, :1], weak, np.ones(len(x))).f_statistic
    for model in ("linear", "kernel"):
        with pytest.raises(InputError, match=r"F statistic of the first stage is .*, below 10"):
            InstrumentalRegressor(model).fit(x[:, :1], y, instruments=weak)
    accepted = InstrumentalRegressor(weakest_f=0).fit(x[:, :1], y, instruments=weak)
    assert accepted.first_stage_f_ == pytest.approx(found)
    with pytest.raises(InputError, match=f"is {found:.3g}, below"):
        InstrumentalRegressor().fit(x[:, :1], y, instruments=weak)
    with pytest.raises(InputError, match=r"endogenous columns of X, 2, .* Got 1"):
        InstrumentalRegressor().fit(x[:, :2], y, instruments=z[:, 0])
    with pytest.raises(InputError, match="cannot be told apart"):
        InstrumentalRegressor().fit(x[:, [0, 0]], y, instruments=z)


@pytest.mark.parametrize(("n", "q"), [(60, 70), (60, 59), (3, 2), (2, 2), (1, 2)])
def test_as_many_instruments_as_rows_are_refused(n, q):
    """They explain any x, and noise would seem to be infinitely strong."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=n)
    x, z = (hidden + 0.3 * rng.normal(size=n))[:, None], rng.normal(size=(n, q))
    for weakest in (0, 10):
        with pytest.raises(InputError, match="no degrees of freedom"):
            InstrumentalRegressor(weakest_f=weakest).fit(x, 3 * hidden, instruments=z)
    # Rows of weight 0 do not count, and one instrument twice is one.
    if n == 60:
        weights = np.repeat([1.0, 0.0], 30)
        with pytest.raises(InputError, match="no degrees of freedom"):
            InstrumentalRegressor().fit(x, 3 * hidden, weights, instruments=z[:, :29])
        twice = np.repeat(x + 0.01 * z[:, :1], q, axis=1)
        assert InstrumentalRegressor().fit(x, x[:, 0], instruments=twice).first_stage_f_ > 1000
        assert strength(x, z[:, :58], np.ones(n)).f_statistic < 100  # one degree is left


@pytest.mark.filterwarnings("ignore:The best ridge of")
def test_noise_is_no_instrument_of_a_kernel():
    """Out of fold: F of pure noise is about 1, whatever stage 1 finds in its rows."""
    rng = np.random.default_rng(0)
    statistics = []
    for _ in range(5):
        x, y, z = rng.normal(size=(3, 60, 1))
        model = InstrumentalRegressor("kernel", weakest_f=0, random_state=0)
        statistics.append(model.fit(x, y[:, 0], instruments=z).first_stage_f_)
    assert np.median(statistics) < 4


def test_without_instruments_it_is_ordinary_regression():
    x, y, _ = world(0, n=50)
    weights = np.random.default_rng(0).uniform(0.2, 2, size=len(y))
    targets = np.stack([y, -2 * y], axis=1)
    model = InstrumentalRegressor().fit(x, targets, weights)
    peer = LinearRegression().fit(x, targets, weights)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-8)
    np.testing.assert_allclose(model.predict(x), peer.predict(x), atol=1e-8)
    assert model.standard_errors_.shape == model.coef_.shape
    assert model.first_stage_f_ == np.inf
    kernel = InstrumentalRegressor("kernel", kernel=RBF(), ridge=0.3).fit(x, y)
    centered = np.eye(len(y)) - 1 / len(y)
    squares = np.sum((x[:, None] - x) ** 2, axis=2)
    gram = np.exp(-squares / 2)
    # Kernel ridge with an intercept is kernel ridge of the centered Gram matrix.
    ridge = KernelRidge(alpha=0.3, kernel="precomputed")
    ridge.fit(centered @ gram @ centered, y - y.mean())
    wanted = ridge.predict(centered @ gram @ centered) + y.mean()
    np.testing.assert_allclose(kernel.predict(x), wanted, atol=1e-8)


def test_weights_count():
    """Weight 0 is no row; weights move the answer; only their ratios do."""
    x, y, z = world(0)
    weights = np.random.default_rng(0).uniform(0.2, 2, size=len(y))
    model = InstrumentalRegressor(random_state=0)
    weighted = clone(model).fit(x, y, weights, instruments=z)
    more = np.r_[weights, 0 * weights]
    same = clone(model).fit(np.r_[x, 9 + x], np.r_[y, -y], more, instruments=np.r_[z, -z])
    np.testing.assert_allclose(same.coef_, weighted.coef_, rtol=1e-8)
    np.testing.assert_allclose(same.standard_errors_, weighted.standard_errors_, rtol=1e-8)
    scaled = clone(model).fit(x, y, 3 * weights, instruments=z)
    np.testing.assert_allclose(scaled.coef_, weighted.coef_, rtol=1e-8)
    np.testing.assert_allclose(scaled.standard_errors_, weighted.standard_errors_, rtol=1e-8)
    assert scaled.first_stage_f_ == pytest.approx(weighted.first_stage_f_, rel=1e-8)
    plain = clone(model).fit(x, y, instruments=z)
    assert np.abs(plain.coef_ - weighted.coef_).max() > 1e-3


def curved(seed, n=250):
    rng = np.random.default_rng(seed)
    z, hidden = rng.uniform(-3, 3, size=(n, 1)), rng.normal(size=n)
    x = z + 0.9 * hidden[:, None] + 0.2 * rng.normal(size=(n, 1))
    return x, np.abs(x[:, 0]) + 2.5 * hidden + 0.2 * rng.normal(size=n), z


def test_kernels_find_a_curve_that_ordinary_regression_bends():
    grid = np.linspace(-2, 2, 41)[:, None]
    errors = []
    for seed in range(3):
        x, y, z = curved(seed)
        two_stage = InstrumentalRegressor("kernel", random_state=0).fit(x, y, instruments=z)
        ordinary = InstrumentalRegressor("kernel").fit(x, y)
        errors.append(
            [
                np.sqrt(np.mean((model.predict(grid) - np.abs(grid[:, 0])) ** 2))
                for model in (two_stage, ordinary)
            ]
        )
        assert two_stage.first_stage_f_ > 100
    assert all(two < 0.8 * ordinary for two, ordinary in errors)


def test_the_kernel_answer_by_hand():
    """Stage 2 minimizes Σ(y − c − Σ_j W_ij g(x_j))² + λ‖g‖², W by folds."""
    x, y, z = curved(0, n=40)
    model = InstrumentalRegressor(
        "kernel", kernel=RBF(), instrument_kernel=RBF(), ridge=0.2, random_state=1
    ).fit(x, y, instruments=z)
    gram, between = np.exp(-((x - x.T) ** 2) / 2), np.exp(-((z - z.T) ** 2) / 2)
    reading = np.zeros((40, 40))
    for fitted, predicted in KFold(5, shuffle=True, random_state=1).split(x):
        own = between[np.ix_(fitted, fitted)] + model.first_stage_path_.value * np.eye(len(fitted))
        part = between[np.ix_(predicted, fitted)] @ np.linalg.inv(own)
        reading[np.ix_(predicted, fitted)] = part + (1 - part.sum(1, keepdims=True)) / len(fitted)
    np.testing.assert_allclose(reading.sum(axis=1), 1.0)
    # Its minimum: (MC + λI)β = y − ȳ with M = W K Wᵀ, and g = Σ_i β_i Σ_j W_ij K(x_j, ·).
    products, center = reading @ gram @ reading.T, np.eye(40) - 1 / 40
    dual = np.linalg.solve(center @ products @ center + 0.2 * np.eye(40), center @ y)
    intercept = np.mean(y - products @ dual)
    np.testing.assert_allclose(model.predict(x), gram @ reading.T @ dual + intercept, rtol=1e-8)
    # No step in the span of the rows lowers what is minimized.
    residual = y - intercept - products @ dual
    np.testing.assert_allclose(reading.T @ residual, 0.2 * reading.T @ dual, atol=1e-8)


def test_features_have_the_products_of_the_gram():
    x, _, _ = curved(0, n=20)
    gram, share = np.exp(-((x - x.T) ** 2) / 2), np.full((20, 20), 1 / 20)
    features = centered_features(gram, np.ones(20))
    wanted = gram - share @ gram - gram @ share + share @ gram @ share
    np.testing.assert_allclose(features @ features.T, wanted, atol=1e-6)


def test_the_likelihood_of_a_ridge_by_hand():
    """log N of the centered targets with the best noise variance, differences of ridges."""
    x, y, _ = curved(0, n=15)
    gram = np.exp(-((x - x.T) ** 2) / 2)
    system, _ = decompose_gram(gram, y[:, None], np.ones(15))
    ridges = np.array([0.01, 0.1, 1.0])
    basis = np.linalg.svd(np.eye(15) - 1 / 15)[0][:, :14]  # without the mean
    wanted = []
    for ridge in ridges:
        covariance = basis.T @ gram @ basis / ridge + np.eye(14)
        square = (basis.T @ y) @ np.linalg.solve(covariance, basis.T @ y)
        wanted.append(7 * np.log(square) + 0.5 * np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(system.marginal_likelihood(ridges), wanted, rtol=1e-8)


def test_at_home_in_scikit_learn():
    x, y, z = world(0)
    table = pd.DataFrame(x, columns=["price", "wage", "age"])
    pipeline = make_pipeline(
        StandardScaler().set_output(transform="pandas"), InstrumentalRegressor(random_state=0)
    )
    pipeline.fit(table, y, instrumentalregressor__instruments=z)
    alone = InstrumentalRegressor(random_state=0).fit(x, y, instruments=z)
    # Exogenous columns are found whatever their scale.
    np.testing.assert_allclose(pipeline[-1].coef_ / table.std(ddof=0), alone.coef_, rtol=1e-6)
    assert list(pipeline[-1].feature_names_in_) == ["price", "wage", "age"]
    search = GridSearchCV(InstrumentalRegressor(random_state=0), {"n_folds": [2, 5]}, cv=2)
    search.fit(x, y, instruments=z)
    assert search.best_estimator_.first_stage_f_ < np.inf
    same = pickle.loads(pickle.dumps(alone))
    np.testing.assert_array_equal(same.predict(x), alone.predict(x))
    assert "InstrumentalRegressor" in pipeline._repr_html_()


def test_what_is_wrong_is_said():
    x, y, z = world(0, n=30)
    for wrong in ({"model": "cubic"}, {"n_folds": 1}, {"n_folds": 31}, {"weakest_f": -1}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
            InstrumentalRegressor(weakest_f=0).set_params(**wrong).fit(x, y, instruments=z)
    with pytest.raises(InputError, match="`ridge`"):
        InstrumentalRegressor("kernel", ridge="loo").fit(x, y)
    with pytest.raises(ValueError, match="inconsistent"):
        InstrumentalRegressor().fit(x, y, instruments=z[:5])
    with pytest.raises(ValueError, match="NaN"):
        InstrumentalRegressor().fit(x, y, instruments=np.where(z > 1, np.nan, z))
