"""Theorem 6.4 over all contexts of small worlds, in NumPy."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from finetti.core.errors import InputError
from finetti.latent import BetaBernoulli, FiniteAtoms, GaussianEmission
from finetti.risk import ContextTable, enumerate_contexts, transfer_report, uniform_fit

WORLD = FiniteAtoms(
    prior=[0.5, 0.3, 0.2], emission=[[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.1, 0.7]]
)
LETTERS = WORLD.emission.mean


def report(rng, contexts, downstream, *, readout=None, noise=0.05, **options):
    learned = contexts.mean(LETTERS) + noise * rng.normal(size=(len(contexts.mass), 3))
    return transfer_report(
        contexts,
        pretraining=LETTERS,
        downstream=downstream,
        pretrained=learned,
        readout=learned if readout is None else readout,
        **options,
    )


def test_contexts_have_all_mass_and_their_posteriors_average_to_the_prior():
    contexts = enumerate_contexts(WORLD, 4)
    assert contexts.tokens.shape == (15, 4)  # 81 sequences, up to their order
    assert abs(contexts.mass.sum() - 1) < 1e-12
    np.testing.assert_allclose(contexts.mass @ contexts.posteriors, WORLD.prior, atol=1e-12)
    predicted = WORLD.predict(contexts.tokens).mean
    np.testing.assert_allclose(contexts.mean(LETTERS), predicted, atol=1e-12)


def test_the_squared_error_of_a_table_is_that_of_sampled_contexts():
    contexts = enumerate_contexts(WORLD, 3)
    function = np.array([[1.0], [0.0], [-1.0]])
    draw = WORLD.sample(0, 20_000, 3)
    found = (WORLD.posterior(draw.tokens).probabilities @ function) ** 2
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert abs(found.mean() - contexts.squared(contexts.mean(function))) < 5 * error


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), outputs=st.integers(1, 3))
@example(seed=20665, outputs=1)  # the optimum of the program is above the error by rounding
def test_no_linear_function_is_nearer_than_the_uniform_fit(seed, outputs):
    rng = np.random.default_rng(seed)
    features, targets = rng.normal(size=(20, 3)), rng.normal(size=(20, outputs))
    fit = uniform_fit(features, targets)
    assert fit.floor <= fit.error <= fit.floor + 1e-5
    nearby = fit.weights + 0.01 * rng.normal(size=(50, 3, outputs))
    sizes = np.linalg.norm(features @ nearby - targets, axis=-1).max(axis=-1)
    assert sizes.min() >= fit.floor - 1e-9


def test_the_uniform_fit_of_numbers_is_chebyshevs():
    x = np.linspace(-1, 1, 201)
    powers = np.stack([np.ones_like(x), x, x**2], axis=1)
    # x³ − (3/4)x has five alternating errors of size 1/4.
    fit = uniform_fit(powers, x[:, None] ** 3)
    assert abs(fit.error - 0.25) < 1e-3
    np.testing.assert_allclose(fit.weights[:, 0], [0, 0.75, 0], atol=5e-3)


def test_the_uniform_fit_of_vectors_by_another_route():
    rng = np.random.default_rng(3)
    features, targets = rng.normal(size=(12, 2)), rng.normal(size=(12, 2))

    def errors(packed):
        return packed[-1] ** 2 - np.sum((features @ packed[:4].reshape(2, 2) - targets) ** 2, 1)

    rule = {"type": "ineq", "fun": errors}
    found = minimize(lambda packed: packed[-1], np.append(np.zeros(4), 5.0), constraints=rule)
    assert abs(uniform_fit(features, targets).error - found.fun) < 1e-5


def test_dependent_features_get_the_weights_of_least_norm():
    features = np.array([[1.0, 1.0], [2.0, 2.0]])
    fit = uniform_fit(features, np.array([[1.0], [2.0]]))
    np.testing.assert_allclose(fit.weights, [[0.5], [0.5]], atol=1e-9)
    nothing = uniform_fit(np.zeros((2, 1)), np.array([[3.0], [4.0]]))
    assert (nothing.error, nothing.weights.tolist()) == (4.0, [[0.0]])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 3), width=st.integers(1, 3))
def test_the_inequality_and_its_identity_hold(seed, length, width):
    rng = np.random.default_rng(seed)
    contexts = enumerate_contexts(WORLD, length)
    readout = rng.normal(size=(len(contexts.mass), width))
    features = LETTERS + 0.1 * rng.normal(size=(3, 3))
    found = report(rng, contexts, rng.normal(size=(3, 2)), readout=readout, features=features)
    left = found.matrix @ found.pretraining_weights.T
    np.testing.assert_allclose(left, found.downstream_weights.T, atol=1e-7)
    assert found.excess <= found.aligned_excess + 1e-9
    assert found.ratio <= 1 + 1e-9


def test_the_bound_is_the_sum_of_its_terms_by_hand():
    rng = np.random.default_rng(0)
    contexts = enumerate_contexts(WORLD, 2)
    features = LETTERS[:, :2]
    found = report(rng, contexts, LETTERS[:, :1], readout=np.ones((6, 1)), features=features)
    mu = np.linalg.norm(found.matrix, 2) ** 2
    truth = contexts.mean(LETTERS)
    excess = contexts.mass @ np.sum((found.pretrained - truth) ** 2, axis=1)
    residual = np.abs(LETTERS - features @ found.pretraining_weights).max(axis=0)
    aggregation = np.linalg.norm(found.aligned - found.pretrained @ found.matrix.T, axis=1).max()
    by_hand = 3 * aggregation**2 + 6 * mu * (excess + np.sum(residual**2))
    by_hand += 3 * np.sum(np.abs(LETTERS[:, :1] - features @ found.downstream_weights).max(0) ** 2)
    assert abs(found.bound.value / by_hand - 1) < 1e-10
    assert abs(sum(term["value"] for term in found.terms) / by_hand - 1) < 1e-10


def test_the_same_task_with_the_same_mask_costs_what_pretraining_did():
    rng = np.random.default_rng(1)
    contexts = enumerate_contexts(WORLD, 3)
    found = report(rng, contexts, LETTERS)
    assert abs(found.condition_number - 1) < 1e-9
    assert max(found.transfer_error, found.latent_error, found.aggregation_error) < 1e-6
    assert abs(found.aligned_excess - found.pretraining_excess) < 1e-6


def test_a_report_shows_both_sides_and_draws_them():
    contexts = enumerate_contexts(WORLD, 2)
    found = report(np.random.default_rng(2), contexts, LETTERS[:, :1])
    text = str(found)
    for words in ("Theorem 6.4", "condition number μ", "6μE^PT", "ε_SSL", "3ε_g²"):
        assert words in text
    bars = found.chart()["layer"][0]["data"]["values"]
    assert [bar["part"] for bar in bars][-1] == "bound"
    assert abs(bars[-1]["to"] - found.bound.value) < 1e-12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ContextTable(np.eye(2), [0.5, 0.6]), "nonnegative and of sum 1"),
        (lambda: ContextTable(np.eye(2), [1.0]), "one number per row"),
        (lambda: enumerate_contexts(BetaBernoulli(), 2), "FiniteAtoms with letters"),
        (
            lambda: enumerate_contexts(
                FiniteAtoms([0.5, 0.5], GaussianEmission([[0.0], [1.0]], 1.0)), 2
            ),
            "FiniteAtoms with letters",
        ),
        (lambda: enumerate_contexts(WORLD, 1000), "Shorten the contexts"),
        (lambda: uniform_fit([[1.0]], [[1.0], [2.0]]), "rows (n, d)"),
        (lambda: uniform_fit([[np.nan]], [[1.0]]), "finite"),
        (
            lambda: report(np.random.default_rng(0), enumerate_contexts(WORLD, 1), np.ones((2, 1))),
            "one row for each of 3 atoms",
        ),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(").replace(")", r"\)")):
        call()


def test_a_bound_of_zero_has_a_ratio():
    """Pretraining on one atom is perfect: both sides are 0."""
    world = FiniteAtoms(prior=[1.0], emission=[[0.25, 0.75]])
    contexts = enumerate_contexts(world, 3)
    learned = contexts.mean(world.emission.mean)
    found = transfer_report(
        contexts,
        pretraining=world.emission.mean,
        downstream=world.emission.mean,
        pretrained=learned,
        readout=learned,
    )
    assert found.bound.value < 1e-24  # 0 up to rounding, or exactly: then the ratio was an error
    assert found.ratio == 0
    assert "has 0 % of the bound" in str(found)
