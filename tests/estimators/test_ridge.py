"""Ridge for a whole grid from one decomposition, against explicit solutions and brute force."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from finetti.estimators.criterion_path import CriterionPath
from finetti.estimators.random_features.gram_sums import GramSums
from finetti.estimators.ridge_system import (
    RidgeRule,
    decompose_gram,
    decompose_rows,
    ridge_grid,
    ridge_path,
)

SHAPES = [(30, 7), (12, 40), (9, 9), (10, 9)]
RIDGES = np.array([1e-6, 1e-3, 0.3, 20.0])
TINY, LEAST, LARGE = (RidgeRule(ridge, None, "Model") for ridge in (1e-18, 1e-6, 1e9))


def problem(n, p, seed=0, targets=2):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, p)) + 3.0
    return features, rng.normal(size=(n, targets)) - 5.0, rng.uniform(0.2, 3.0, size=n)


@pytest.mark.parametrize("rule", [None, LARGE])  # by singular values, by squares
@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_coefficients_are_those_of_scikit_learn(shape, has_intercept, rule):
    features, targets, weights = problem(*shape)
    system, _ = decompose_rows(features, targets, weights, has_intercept=has_intercept, rule=rule)
    for ridge in RIDGES[1:]:
        peer = Ridge(ridge, fit_intercept=has_intercept, solver="svd")
        peer.fit(features, targets, weights)
        found = system.coefficients(ridge)
        np.testing.assert_allclose(found, peer.coef_.T, atol=1e-8)
        np.testing.assert_allclose(
            features @ found + system.intercept(found), peer.predict(features), atol=1e-8
        )


@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_leave_one_out_is_brute_force(shape, has_intercept):
    features, targets, weights = problem(*shape)
    system, rows = decompose_rows(features, targets, weights, has_intercept=has_intercept)
    found = system.loo(RIDGES, [rows])
    for ridge, value in zip(RIDGES, found, strict=True):
        total = 0.0
        for out in range(len(features)):
            kept = np.arange(len(features)) != out
            peer = Ridge(ridge, fit_intercept=has_intercept, solver="svd")
            peer.fit(features[kept], targets[kept], weights[kept])
            error = targets[out] - peer.predict(features[out : out + 1])[0]
            total += weights[out] * np.mean(error**2)
        assert value == pytest.approx(total / weights.sum(), rel=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_generalized_cross_validation_is_its_formula(shape):
    features, targets, _ = problem(*shape)
    system, _ = decompose_rows(features, targets)
    n = len(features)
    centered = features - features.mean(axis=0)
    ridges = RIDGES[1:]  # below, the explicit inverse has no digits
    for ridge, value in zip(ridges, system.gcv(ridges), strict=True):
        inner = np.linalg.inv(centered.T @ centered + ridge * np.eye(shape[1]))
        hat = centered @ inner @ centered.T + 1 / n
        residual = targets - hat @ targets
        wanted = np.mean(np.sum(residual**2, axis=0)) / n / (1 - np.trace(hat) / n) ** 2
        assert value == pytest.approx(wanted, rel=1e-5)


def test_the_criteria_agree_at_equal_leverages_only():
    """A circulant design has equal leverages."""
    angles = 2 * np.pi * np.arange(12) / 12
    features = np.stack([np.cos(angles), np.sin(angles), np.cos(2 * angles)], axis=1)
    features = np.concatenate([features, np.sin(2 * angles)[:, None]], axis=1)
    targets = np.random.default_rng(0).normal(size=(12, 1))
    system, rows = decompose_rows(features, targets)
    np.testing.assert_allclose(system.loo(RIDGES, [rows]), system.gcv(RIDGES), rtol=1e-9)
    system, rows = decompose_rows(features**3, targets)
    assert np.abs(system.loo(RIDGES, [rows]) / system.gcv(RIDGES) - 1).max() > 0.01


def test_a_tiny_ridge_on_float32_features_is_stable():
    """Float32 features, nearly dependent: squares of singular values would be rounding."""
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(60, 4)) @ rng.normal(size=(4, 200))).astype(np.float32)
    targets = features[:, :1].astype(float)
    system, rows = decompose_rows(features, targets, rule=TINY)
    found = system.coefficients(1e-14)
    assert np.abs(found).max() < 1.0
    np.testing.assert_allclose(features @ found + system.intercept(found), targets, atol=1e-6)
    tiny = system.loo(np.array([1e-14, 1e-12]), [rows])
    errors = []
    for out in range(60):
        kept = np.arange(60) != out
        part, _ = decompose_rows(features[kept], targets[kept])
        inner = part.coefficients(1e-14)
        errors.append(targets[out] - features[out] @ inner - part.intercept(inner))
    assert tiny[0] == pytest.approx(np.mean(np.square(errors)), rel=1e-2)


@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_weights_count_rows(n, p, seed):
    """A weight of 2 is the row twice, of 0 none at all."""
    features, targets, _ = problem(n, p, seed)
    weights = np.random.default_rng(seed).integers(0, 3, size=n)
    weights[0] = 1
    whole, _ = decompose_rows(features, targets, weights)
    repeated, _ = decompose_rows(np.repeat(features, weights, 0), np.repeat(targets, weights, 0))
    np.testing.assert_allclose(whole.coefficients(0.1), repeated.coefficients(0.1), atol=1e-9)


def test_of_equal_criteria_the_largest_ridge_is_chosen():
    path = CriterionPath("ridge", "loo", np.array([0.1, 1.0, 10.0]), np.array([2.0, 1.0, 1.0]))
    assert path.value == 10.0
    assert path.at_edge
    assert ridge_grid(0.0, None, "x")[0] == pytest.approx(1e-7)


def test_a_ridge_at_the_edge_warns():
    grid = np.array([0.1, 1.0, 10.0])
    for criterion, end in (
        ([3.0, 2.0, 1.0], "largest of its grid, 10"),
        ([1.0, 2.0, 3.0], "smallest"),
    ):
        with pytest.warns(ConvergenceWarning, match=f"{end}.*`ridges` that reach further"):
            CriterionPath("ridge", "loo", grid, np.array(criterion)).warn_at_edge("Model")
    for quiet in ([2.0, 1.0, 2.0], [0.0, 0.0, 0.0], [np.inf] * 3, [np.nan] * 3):
        CriterionPath("ridge", "loo", grid, np.array(quiet)).warn_at_edge("Model")
    CriterionPath("ridge", "loo", grid[:2], np.array([2.0, 1.0])).warn_at_edge("Model")


@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_parts_in_any_order_are_the_whole(shape, has_intercept):
    features, targets, weights = problem(*shape)
    whole, _ = decompose_rows(features, targets, weights, has_intercept=has_intercept)
    cuts = [slice(0, 3), slice(3, 4), slice(4, None)]
    added, merged = GramSums(shape[1], 2, LEAST), GramSums(shape[1], 2, LEAST)
    for cut in cuts:
        added.add(features[cut], targets[cut], weights[cut])
    for cut in reversed(cuts):
        merged += GramSums(shape[1], 2, LEAST).add(features[cut], targets[cut], weights[cut])
    for sums in (added, merged):
        system = sums.system(has_intercept)
        for ridge in RIDGES[1:]:
            wanted = whole.coefficients(ridge)
            np.testing.assert_allclose(system.coefficients(ridge), wanted, atol=1e-8)
            found, intercept = sums.solve(ridge, has_intercept)
            np.testing.assert_allclose(found, wanted, atol=1e-8)
            np.testing.assert_allclose(intercept, whole.intercept(wanted), atol=1e-8)
        np.testing.assert_allclose(system.gcv(RIDGES[1:]), whole.gcv(RIDGES[1:]), rtol=1e-6)


def test_a_million_rows_are_added_as_products():
    """Rounding of their sums hides the least ridges of the default grid, which are left out."""
    rule, rng = RidgeRule("gcv", None, "Model"), np.random.default_rng(0)
    sums = GramSums(3, 1, rule)
    slopes = np.array([[1.0], [-2.0], [1e-3]])
    for _ in range(4):
        features = rng.normal(size=(2**18, 3))
        sums.add(features, features @ slopes + rng.normal(size=(len(features), 1)))
    assert sums.n_rows == 2**20
    system = sums.system()
    mean_square = float(system.eigenvalues.sum()) / sums.n_rows
    whole, grid = rule.grid(mean_square), rule.grid(mean_square, sums.least_ridge)
    np.testing.assert_array_equal(grid, whole[1:])
    assert grid[0] >= sums.least_ridge > whole[0]
    found = system.coefficients(ridge_path(system, "gcv", grid).value)
    np.testing.assert_allclose(found, slopes, atol=5e-3)  # five standard errors


def test_what_products_cannot_resolve_is_said():
    """Nearly dependent features are left out of least squares, dependent ones in silence."""
    features = np.vander(np.linspace(-1, 1, 200), 24)
    targets = np.sin(4 * features[:, -2:-1])
    whole, _ = decompose_rows(features, targets)
    sums = GramSums(24, 1, TINY).add(features, targets)
    with pytest.warns(UserWarning, match=r"resolve ridges from .* nearly dependent .*left out"):
        found, intercept = sums.solve(0.0)
    wanted = features @ whole.coefficients(0.0) + whole.intercept(whole.coefficients(0.0))
    np.testing.assert_allclose(features @ found + intercept, wanted, atol=1e-6)
    twice = np.concatenate([features[:, -3:], features[:, -3:]], axis=1)
    found, intercept = GramSums(6, 1, TINY).add(twice, targets).solve(0.0)
    np.testing.assert_allclose(found[:3], found[3:], atol=1e-10)
    with pytest.warns(UserWarning, match="smaller ones of `ridges` are left out"):
        assert RidgeRule("gcv", [1e-9, 1.0], "Model").grid(1.0, 1e-6).tolist() == [1.0]
    with pytest.warns(UserWarning, match="smaller ones of `ridges` are left out"):
        assert RidgeRule("gcv", [1e-9], "Model").grid(1.0, 1e-6).tolist() == [1e-6]


@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_alone_are_enough(shape, has_intercept):
    features, targets, weights = problem(*shape)
    weights[2] = 0.0
    gram = features @ features.T
    system, rows = decompose_gram(gram, targets, weights, has_intercept=has_intercept)
    whole, whole_rows = decompose_rows(features, targets, weights, has_intercept=has_intercept)
    for ridge in RIDGES[1:]:
        dual = system.coefficients(ridge)
        wanted = whole.coefficients(ridge)
        np.testing.assert_allclose(features.T @ dual, wanted, atol=1e-8)
        np.testing.assert_allclose(system.intercept(dual), whole.intercept(wanted), atol=1e-8)
    found, wanted = system.loo(RIDGES, [rows]), whole.loo(RIDGES, [whole_rows])
    np.testing.assert_allclose(found[1:], wanted[1:], rtol=1e-6)
    np.testing.assert_allclose(system.gcv(RIDGES[1:]), whole.gcv(RIDGES[1:]), rtol=1e-6)


def test_a_gram_matrix_of_no_certain_rank():
    """Small eigenvalues do not mix with the intercept's 0: dual coefficients sum to 0."""
    x = np.linspace(-3, 3, 25)[:, None]
    gram, targets = np.exp(-((x - x.T) ** 2) / 2), np.cos(5 * x) + 3
    system, _ = decompose_gram(gram, targets)
    center = np.eye(25) - 1 / 25
    for ridge in (1e-3, 1.0):
        wanted = np.linalg.solve(center @ gram @ center + ridge * np.eye(25), center @ targets)
        found = system.coefficients(ridge)
        np.testing.assert_allclose(gram @ found, gram @ wanted, atol=1e-8)
        assert abs(found.sum()) < 1e-10 * np.abs(found).sum()


def made_degenerate(matrix, kind, rng):
    """With lines (axis 0) that say nothing new, or next to nothing."""
    matrix = matrix.copy()
    if kind == "duplicated":
        matrix[1] = matrix[0]
    elif kind == "all duplicated":
        matrix[:] = np.resize(matrix[: -(-len(matrix) // 2)], matrix.shape)
    elif kind == "nearly duplicated":
        matrix[1] = matrix[0] + 1e-9 * rng.normal(size=matrix.shape[1])
    elif kind == "constant":
        matrix[0] = 3.0
    elif kind == "zero":
        matrix[0] = 0.0
    elif kind == "collinear":
        matrix[-1] = 2.0 * matrix[0] - matrix[1]
    return matrix


def refitted(features, targets, weights, has_intercept, ridge):
    """Leave-one-out by one fit for each row, and GCV by its formula, as least squares."""

    def solve(kept):
        roots = np.sqrt(weights[kept])[:, None]
        center = np.zeros(features.shape[1]), np.zeros(targets.shape[1])
        if has_intercept:
            center = tuple(
                np.average(part[kept], axis=0, weights=weights[kept])
                for part in (features, targets)
            )
        rows = np.concatenate(
            [roots * (features[kept] - center[0]), ridge**0.5 * np.eye(features.shape[1])]
        )
        return roots, center, rows

    n, p = features.shape
    total = 0.0
    for out in range(n):
        kept = np.arange(n) != out
        roots, (means, target_means), rows = solve(kept)
        right = np.pad(roots * (targets[kept] - target_means), ((0, p), (0, 0)))
        found = np.linalg.lstsq(rows, right, rcond=0)[0]
        error = targets[out] - target_means - (features[out] - means) @ found
        total += weights[out] * np.mean(error**2)
    roots, (_, target_means), rows = solve(slice(None))
    left = np.linalg.qr(rows)[0][:n]
    hat = left @ left.T + has_intercept * roots @ roots.T / weights.sum()
    right = roots * targets
    residual = np.sum((right - hat @ right) ** 2, axis=0)
    return total / weights.sum(), n * np.mean(residual) / (n - np.trace(hat)) ** 2


def systems(features, targets, weights, has_intercept):
    """The same regression by every route, and its rows where the route has them."""
    for rule in (TINY, LEAST):
        yield decompose_rows(features, targets, weights, has_intercept=has_intercept, rule=rule)
    yield decompose_gram(features @ features.T, targets, weights, has_intercept=has_intercept)
    sums = GramSums(features.shape[1], targets.shape[1], LEAST)
    for cut in (slice(0, 2), slice(2, None)):
        sums.add(features[cut], targets[cut], weights[cut])
    system = sums.system(has_intercept)
    yield system, system.rows(features, targets, weights, float(weights.sum()))


KINDS = [
    "none",
    "duplicated",
    "all duplicated",
    "nearly duplicated",
    "constant",
    "zero",
    "collinear",
]


@given(
    st.sampled_from([(4, 6), (6, 6), (6, 5), (7, 5), (9, 4)]),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
@example((4, 6), "duplicated", "none", True, False, 0)  # by squares, and by sums
@example((6, 6), "duplicated", "none", False, False, 0)  # as many rows as features
@example((6, 5), "duplicated", "duplicated", True, True, 0)  # and one row more
@example((4, 6), "nearly duplicated", "none", True, True, 0)  # by singular values
def test_criteria_are_those_of_refits(shape, rows, columns, has_intercept, has_weights, seed):
    """By every route, whatever the rank is and however uncertain."""
    rng = np.random.default_rng(seed)
    features, targets, weights = problem(*shape, seed)
    features = made_degenerate(made_degenerate(features, rows, rng).T, columns, rng).T
    if not has_weights:
        weights = np.ones(len(features))
    wanted = [refitted(features, targets, weights, has_intercept, ridge) for ridge in RIDGES]
    for system, own in systems(features, targets, weights, has_intercept):
        found = np.transpose([system.loo(RIDGES, [own]), system.gcv(RIDGES)])
        np.testing.assert_allclose(found, wanted, rtol=1e-3)
