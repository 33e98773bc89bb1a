"""The constrained fit of the theorem: exact maps on its limits, and a certificate that is one."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from finetti.core.errors import InputError
from finetti.estimators import ConstrainedAttentionClassifier, ConstrainedAttentionRegressor
from finetti.estimators.constrained.constrained_solver import ConstrainedRisk, minimize_constrained
from finetti.estimators.constrained.losses import Loss
from finetti.estimators.constrained.norm_limits import BlockLimits

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4, 3))
X /= np.linalg.norm(X, axis=2, keepdims=True)
Y = np.mean(X[:, 1:, 0] ** 2, axis=1) + 0.3 * X[:, 0, 1]
SIGNS = np.where(np.median(Y) < Y, 1.0, -1.0)
LOSSES = [
    (Loss("huber", 0.1), Y),
    (Loss("huber"), 50 * Y),
    (Loss("logistic"), SIGNS),
    (Loss("smoothed hinge", 0.5), SIGNS),
]


def limited(limits):
    """The limits on lengths, as scipy takes them."""
    return [
        {"type": "ineq", "fun": lambda t: limits.norm_sum - t.sum()},
        {"type": "ineq", "fun": lambda t: limits.root_square_sum**2 - t @ t},
    ]


lengths = st.lists(st.sampled_from([0.0, 0.2, 1.0, 1.5, 4.0]), min_size=1, max_size=6)
limit = st.floats(0.2, 4.0)


def largest_product(target, limits):
    """max ⟨c, t⟩, by trying out the points (c − τ)₊ as long as the limits allow."""
    points = np.maximum(target - np.linspace(0, target.max(), 4001)[:-1, None], 0)
    sums, roots = points.sum(axis=1), np.linalg.norm(points, axis=1)
    lengths = np.minimum(limits.norm_sum / sums, limits.root_square_sum / roots)
    return float((lengths * (points @ target)).max())


@example([4.0], 0.2, 0.20000000000000004)
@given(lengths, limit, limit)
def test_the_nearest_point_and_the_largest_product(lengths, norm_sum, root_square_sum):
    """Ties, zeros, either limit or both binding."""
    target, limits = np.array(lengths), BlockLimits(norm_sum, root_square_sum)
    support = limits.support(target[:, None])
    if target.any():
        assert support == pytest.approx(largest_product(target, limits), rel=1e-3)
    # No point of the set lies further along (target − found) than found does: it is the nearest.
    found = limits.project(target[:, None])[:, 0]
    assert limits.contain(found * (1 - 1e-12))
    left = target - found
    assert limits.support(left[:, None]) == pytest.approx(left @ found, abs=1e-12)


def test_blocks_keep_their_directions():
    blocks = RNG.normal(size=(20, 3))
    limits = BlockLimits(5.0, 1.5)
    found = limits.project(blocks)
    ratios = found / blocks
    np.testing.assert_allclose(ratios, ratios[:, :1] * np.ones(3), atol=1e-12)
    # Optimal: no point of the set lies further along (blocks − found) than found does.
    normal = blocks - found
    assert limits.support(normal) == pytest.approx(float(np.sum(normal * found)), rel=1e-9)


@pytest.mark.parametrize(("loss", "targets"), LOSSES)
def test_slopes_are_at_most_one_and_are_the_derivative(loss, targets):
    outputs = np.linspace(-60, 60, len(targets))
    step = 1e-6
    ahead, behind = (loss.values(outputs + sign * step, targets) for sign in (1, -1))
    slopes = loss.slopes(outputs, targets)
    np.testing.assert_allclose((ahead - behind) / (2 * step), slopes, atol=1e-5)
    assert np.abs(slopes).max() <= 1
    if loss.name != "huber":
        assert loss.values(np.zeros(1), np.ones(1))[0] <= 1


def conjugate(loss, slopes, targets):
    """l*(α), in closed form."""
    if loss.name == "huber":
        return slopes * targets + loss.width * slopes**2 / 2
    share = -slopes * targets  # in [0, 1]
    if loss.name == "smoothed hinge":
        return -share + loss.width * share**2 / 2
    return share * np.log(share) + (1 - share) * np.log1p(-share)


@pytest.mark.parametrize(
    "limits", [BlockLimits(1.0, 9.0), BlockLimits(9.0, 0.5), BlockLimits(2, 1)]
)
@pytest.mark.parametrize(("loss", "targets"), LOSSES)
def test_the_gap_is_a_certificate(loss, targets, limits):
    """The dual bound written out with the conjugates, and a general solver that finds no less."""
    features = RNG.normal(size=(len(targets), 8))
    shares = RNG.uniform(0.5, 2.0, size=len(targets))
    shares /= shares.sum()
    risk = ConstrainedRisk(features, targets, shares, loss, limits, 4)
    found = minimize_constrained(risk, tol=1e-7, max_iter=5000)
    assert found.gap <= 1e-7
    assert limits.contain(np.linalg.norm(found.blocks, axis=1) * (1 - 1e-12))
    slopes = loss.slopes(features @ found.blocks.ravel(), targets)
    pulled = ((shares * slopes) @ features).reshape(4, 2)
    dual = -shares @ conjugate(loss, slopes, targets) - limits.support(pulled)
    assert dual <= found.objective + 1e-12
    assert found.objective - dual < 1e-3
    lengths = [
        {"type": "ineq", "fun": lambda v, each=each: each["fun"](np.hypot(v[::2], v[1::2] + 1e-9))}
        for each in limited(limits)
    ]
    start = limits.project(0.1 * RNG.normal(size=(4, 2))).ravel()
    peer = minimize(
        lambda v: shares @ loss.values(features @ v, targets),
        start,
        jac=lambda v: (shares * loss.slopes(features @ v, targets)) @ features,
        constraints=lengths,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert peer.fun >= found.objective - found.gap - 1e-6
    assert peer.fun == pytest.approx(found.objective, abs=1e-4)


@pytest.mark.parametrize(("loss", "targets"), LOSSES)
def test_the_gap_is_true_where_features_are_badly_scaled(loss, targets):
    """Where gradients crawl, too: no fewer iterations reach less than what the bound leaves."""
    features = RNG.normal(size=(len(targets), 8)) * np.geomspace(1.0, 1e3, 8)
    shares = np.full(len(targets), 1 / len(targets))
    risk = ConstrainedRisk(features, targets, shares, loss, BlockLimits(2.0, 1.5), 4)
    early, late = (minimize_constrained(risk, tol=1e-9, max_iter=n) for n in (20, 2000))
    assert late.gap < early.gap
    assert early.objective - early.gap <= late.objective <= early.objective
    assert late.objective - late.gap >= early.objective - early.gap - 1e-12


MODELS = [
    (ConstrainedAttentionRegressor(12, norm_sum=1.0, random_state=0), Y),
    (ConstrainedAttentionClassifier(12, norm_sum=3.0, random_state=0), SIGNS),
    (
        ConstrainedAttentionClassifier(
            12, loss="smoothed hinge", norm_sum=3.0, square_sum=6.0, random_state=0
        ),
        np.digitize(Y, [0.2, 0.5]),
    ),
]


@pytest.mark.parametrize(("model", "targets"), MODELS)
def test_what_is_fitted_meets_both_limits(model, targets):
    model = clone(model).fit(X, targets)
    assert model.gap_ < 1e-6
    limits = model.constraints_
    values = model.model_.values.reshape(12, 4, -1)
    norms = np.linalg.norm(values, axis=1)
    assert limits.norm_sum == pytest.approx(norms.sum(axis=0).max())
    assert limits.square_sum == pytest.approx(np.sum(norms**2, axis=0).max())
    assert limits.norm_sum <= limits.norm_sum_limit + 1e-9
    assert limits.square_sum <= limits.square_sum_limit + 1e-9
    np.testing.assert_allclose(
        *(model._outputs(sets, None, None) for sets in (X, X[:, [0, 3, 1, 2]])), atol=1e-8
    )
    assert model.n_iter_ > 1


@pytest.mark.filterwarnings("ignore:ConstrainedAttentionRegressor fits worse than the mean")
@pytest.mark.parametrize("square_sum", [1.2, 120.0])  # over 12 heads below 1, and above
def test_a_limit_that_binds_is_reached(square_sum):
    """Targets far beyond both limits: the squares are what stops the fit."""
    model = ConstrainedAttentionRegressor(
        12, norm_sum=1e3, square_sum=square_sum, random_state=0
    ).fit(X, 1e4 * Y)
    limits = model.constraints_
    assert limits.square_sum == pytest.approx(limits.square_sum_limit, rel=1e-3)
    assert limits.norm_sum < limits.norm_sum_limit


@pytest.mark.filterwarnings("ignore:ConstrainedAttentionRegressor fits worse than the mean")
def test_a_wider_limit_costs_less():
    objectives = [
        ConstrainedAttentionRegressor(12, norm_sum=limit, random_state=0).fit(X, Y).objective_
        for limit in (0.3, 1.0, 3.0)
    ]
    assert objectives[0] > objectives[1] + 1e-6
    assert objectives[1] > objectives[2] + 1e-6


def test_what_was_not_reached_is_said():
    model = ConstrainedAttentionRegressor(12, max_iter=3, random_state=0)
    with pytest.warns(
        ConvergenceWarning, match=r"3 iterations with a duality gap of \d.*`max_iter`"
    ):
        model.fit(X, Y)
    assert model.gap_ > 1e-6
    assert model.n_iter_ == 3
    with pytest.raises(InputError, match="`loss`"):
        ConstrainedAttentionClassifier(loss="hinge").fit(X, SIGNS)
    with pytest.raises(InputError, match="`norm_sum`"):
        ConstrainedAttentionRegressor(norm_sum=0).fit(X, Y)
    with pytest.raises(InputError, match="`n_heads`"):
        ConstrainedAttentionRegressor(n_heads=0).fit(X, Y)


def test_targets_out_of_reach_are_said():
    """A mean of 150 lies outside limits that leave room for what varies about it."""
    model = ConstrainedAttentionRegressor(12, random_state=0)
    with pytest.warns(UserWarning, match=r"worse than the mean.*no intercept.*norm_sum = 10"):
        model.fit(X, 150 + 77 * Y)
    assert model.score(X, 150 + 77 * Y) < -1
    scaled = TransformedTargetRegressor(clone(model), transformer=StandardScaler())
    assert scaled.fit(X, 150 + 77 * Y).score(X, 150 + 77 * Y) > 0.5


def test_a_long_fit_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr("finetti.display.progress.SHORT_SECONDS", 0.0)
    monkeypatch.setattr("finetti.display.progress.MAX_SILENCE_SECONDS", -1.0)
    ConstrainedAttentionRegressor(12, norm_sum=1.0, random_state=0).fit(X, Y)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("ConstrainedAttentionRegressor: ")
    assert "of 10000 iterations" in lines[0]
    assert "gap" in lines[-1]
