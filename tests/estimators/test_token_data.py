"""Targets of paper R: values, means and descriptions are those of their tensors; the generator."""

import math

import numpy as np
import pytest

from finetti.bounds.random_features import (
    AttentionNorm,
    BiasedNorm,
    CorrelationTarget,
    NetworkNorm,
    Target,
)
from finetti.bounds.value import Sample
from finetti.core.errors import InputError
from finetti.estimators import (
    AttentionKernelRegressor,
    CorrelationPowerTarget,
    KeyPowerTarget,
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
    make_token_regression,
)

DIRECTION = np.random.default_rng(0).normal(size=3)
TARGETS = [
    KeyPowerTarget(DIRECTION, 3),
    KeyPowerTarget(DIRECTION, 4),
    CorrelationPowerTarget(DIRECTION, 1),
    CorrelationPowerTarget(DIRECTION, 2),
]
targets = pytest.mark.parametrize("target", TARGETS, ids=["f13", "f14", "f21", "f22"])


def tensor_of(target):
    """The degree r in the query, and f_rs with r + s axes, those of the query first."""
    if isinstance(target, KeyPowerTarget):
        tensor = np.ones(())
        for _ in range(target.degree):
            tensor = np.multiply.outer(tensor, target.direction)
        return 0, tensor
    tensor, q = target.direction, target.degree
    for _ in range(q):
        tensor = np.multiply.outer(np.eye(3), tensor)
    return q, tensor.transpose([*range(0, 2 * q, 2), *range(1, 2 * q, 2), 2 * q])


def attention_norm(target, form="derived"):
    return AttentionNorm(target.description, form=form).evaluate(Sample(1, 1)).value


def network_norm(target, n_keys):
    return NetworkNorm(target.description).evaluate(Sample(1, n_keys)).value


@targets
def test_values_are_the_loop_over_the_tensor(target):
    X, _ = make_token_regression(3, 4, 3, target=target, random_state=0)
    r, tensor = tensor_of(target)
    for tokens in X:
        total = 0.0
        for key in tokens[1:]:
            for index in np.ndindex(tensor.shape):
                factors = [tokens[0][i] for i in index[:r]] + [key[i] for i in index[r:]]
                total += tensor[index] * math.prod(factors) / 3
        np.testing.assert_allclose(target(tokens[:1], tokens[None, 1:]), [total], atol=1e-12)


@targets
def test_the_description_is_that_of_the_tensor(target):
    r, tensor = tensor_of(target)
    (other,) = Target.from_tensors({(r, tensor.ndim - r): tensor}).components
    (one,) = target.description.components
    assert (one.query_degree, one.key_degree) == (other.query_degree, other.key_degree)
    assert one.log_square == pytest.approx(other.log_square, abs=1e-10)
    assert one.log_symmetric == pytest.approx(other.log_symmetric, abs=1e-10)


@targets
def test_the_mean_is_that_of_many_draws(target):
    """Within 4 standard errors."""
    _, y = make_token_regression(40_000, 2, 3, target=target, random_state=1)
    assert abs(y.mean() - target.mean) < 4 * y.std() / len(y) ** 0.5
    _, centered = make_token_regression(40_000, 2, 3, target=target, centered=True, random_state=1)
    np.testing.assert_allclose(centered, y - target.mean, atol=1e-12)


def test_the_norms_are_those_of_the_table():
    """d = N = 16, ‖b‖ = 1, as in the notes on paper R."""
    unit = np.eye(16)[0]
    for degree, attention, network in ((1, 3.34, 4.35), (2, 12.9, 254), (3, 190, 2.46e5)):
        target = KeyPowerTarget(unit, degree)
        assert attention_norm(target) == pytest.approx(attention, rel=5e-3)
        assert network_norm(target, 16) == pytest.approx(network, rel=5e-3)
    for degree, attention, biased in ((1, 171, 3.6e4), (2, 2.0e4, 7.9e5), (3, 8.4e5, 2.1e7)):
        target = CorrelationPowerTarget(unit, degree)
        # The notes do not symmetrize over the slots of the key, C(d+q−1, q) of them.
        share = math.comb(16 + degree, degree) / (degree + 1) / math.comb(15 + degree, degree)
        assert attention_norm(target) == pytest.approx(share * attention, rel=2e-2)
        correlations = CorrelationTarget((0.0,) * degree + (1.0,), 1.0)
        found = BiasedNorm(correlations, 1).evaluate(Sample(1, 1)).value
        assert found == pytest.approx(biased, rel=2e-2)
    assert attention_norm(KeyPowerTarget(unit, 2), "printed") == pytest.approx(2**8.5)


def test_the_generator_is_seeded_and_on_the_sphere():
    X, y, target = make_token_regression(20, 4, 3, noise=0.5, return_target=True, random_state=7)
    again, same = make_token_regression(20, 4, 3, noise=0.5, random_state=7)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, same)
    np.testing.assert_allclose(np.linalg.norm(X, axis=2), 1.0)
    noise = y - target(X[:, 0], X[:, 1:])
    assert 0.25 < noise.std() < 1.0
    assert not np.array_equal(make_token_regression(20, 4, 3, random_state=8)[0], X)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_tokens": 1}, "the query and a key"),
        ({"target": "f_{1,2}"}, "key_power, correlation_power"),
        ({"target": 3}, "a TokenTarget or the name"),
        ({"target": KeyPowerTarget(np.ones(5), 1)}, "of n_features = 16 dimensions"),
        ({"degree": 0}, "`degree` argument of KeyPowerTarget"),
        ({"noise": -1.0}, "`noise`"),
    ],
)
def test_what_is_wrong_is_said(options, said):
    with pytest.raises(InputError, match=said):
        make_token_regression(10, **{"n_tokens": 3, **options})


def test_directions_are_checked():
    for direction in (np.zeros(3), np.eye(3), [np.nan, 1.0]):
        with pytest.raises(InputError, match="not 0"):
            KeyPowerTarget(direction, 2)


REALIZABLE = [
    KeyPowerTarget(np.eye(4)[0], 1),
    KeyPowerTarget(np.eye(4)[0], 2),
    CorrelationPowerTarget(np.eye(4)[0], 1),
]


@pytest.mark.parametrize("target", REALIZABLE, ids=["f11", "f12", "f21"])
def test_what_is_learned_is_no_larger_than_the_target(target):
    """The limit: ‖f‖²_K ≤ B exactly, since f* itself is a candidate without error.

    M heads cannot be f*, only near it: the theorem's M Σ‖v_m‖² ≤ B/δ and Σ‖v_m‖ ≤ √(B/δ), δ = 1/2.
    """
    X, y = make_token_regression(200, 5, 4, target=target, random_state=0)
    limit = attention_norm(target)
    kernel = AttentionKernelRegressor(ridge=1e-6).fit(X, y)
    assert 0.1 * limit < kernel.norms_.squared_norm <= limit * (1 + 1e-6)
    heads = RandomFeatureAttentionRegressor(200, ridge=1e-3, random_state=0).fit(X, y)
    assert heads.score(X, y) > 0.99
    assert heads.norms_.squared_norm <= 2 * limit
    assert heads.norms_.sum_of_norms**2 <= heads.norms_.squared_norm
    network = RandomFeatureMLPRegressor(1000, ridge=1e-3, random_state=0).fit(X, y)
    assert network.norms_.squared_norm <= 2 * network_norm(target, 4)


def test_norms_by_hand_and_of_every_target():
    X, y = make_token_regression(60, 4, 3, random_state=0)
    both = RandomFeatureAttentionRegressor(7, random_state=0).fit(X, np.stack([y, 3 * y], 1))
    one = RandomFeatureAttentionRegressor(7, random_state=0).fit(X, y)
    values = np.asarray(one.model_.values)  # (M, d + 1)
    by_hand = sum(np.sqrt(np.sum(head**2)) for head in values)
    assert one.norms_.sum_of_norms == pytest.approx(by_hand, rel=1e-5)
    assert one.norms_.squared_norm == pytest.approx(7 * np.sum(values**2), rel=1e-5)
    np.testing.assert_allclose(both.norms_.squared_norm, [1, 9] * np.array(one.norms_.squared_norm))
    np.testing.assert_allclose(both.norms_.sum_of_norms, [1, 3] * np.array(one.norms_.sum_of_norms))
    assert one.norms_.squared_norm == pytest.approx(np.sum(one.coef_**2))


def test_norms_are_those_of_a_fitted_model():
    with pytest.raises(AttributeError):
        _ = RandomFeatureAttentionRegressor(3).norms_
    X, y = make_token_regression(30, 3, 2, random_state=0)
    classes = RandomFeatureAttentionClassifier(3, random_state=0).fit(X, np.digitize(y, [0.3, 0.6]))
    assert classes.norms_.squared_norm.shape == (3,)
