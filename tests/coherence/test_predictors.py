"""Anything can be tested: every kind of target, and what is refused."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as ProcessRBF
from sklearn.linear_model import ARDRegression, BayesianRidge, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from finetti.coherence import (
    as_predictor,
    load_predictor,
    martingale_defect,
    measure_coherence,
    order_averaged,
    order_defect,
    two_step_defect,
)
from finetti.coherence.coherence_experiment import N_STEPS
from finetti.core.errors import FinettiError, InputError, UnsupportedError
from finetti.estimators import ConditionalMeanRegressor
from finetti.kernels import RBF
from finetti.latent import (
    BetaBernoulli,
    FiniteAtoms,
    GaussianProcessWorld,
    SphereWorld,
    random_rotations,
)

RNG = np.random.default_rng(0)
KEYS, VALUES, QUERY = (RNG.normal(size=shape) for shape in ((6, 2), (6, 1), (3, 2)))
WORLD = GaussianProcessWorld(key_dimension=2, noise_variance=0.3)


def batch(*arrays):
    return tuple(each[None] for each in arrays)


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianProcessRegressor(ProcessRBF(1.0), alpha=0.3, optimizer=None),
        ConditionalMeanRegressor(RBF(), ridge=0.3, fit_kernel=False, normalize_y=False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_gaussian_processes_of_scikit_learn_are_the_world(estimator):
    found, exact = as_predictor(estimator), as_predictor(WORLD)
    laws = [each.law(*batch(QUERY, KEYS, VALUES)) for each in (found, exact)]
    np.testing.assert_allclose(laws[0].mean, laws[1].mean, rtol=1e-7)
    np.testing.assert_allclose(laws[0].variance, laws[1].variance, rtol=1e-7)
    assert two_step_defect(found, (KEYS, VALUES), QUERY).exact
    assert two_step_defect(found, (KEYS, VALUES), QUERY).holds()


def test_a_normalized_process_is_not_coherent():
    """Centered and scaled by the values themselves, it is not linear in them."""
    found = as_predictor(
        GaussianProcessRegressor(ProcessRBF(1.0), alpha=0.3, optimizer=None, normalize_y=True)
    )
    assert not two_step_defect(found, (KEYS, VALUES), QUERY, n_samples=60).holds()


def test_linearity_is_tried_out():
    ridge, tree = as_predictor(Ridge()), as_predictor(DecisionTreeRegressor(random_state=0))
    assert ridge.is_linear(*batch(QUERY, KEYS, VALUES))
    assert not tree.is_linear(*batch(QUERY, KEYS, VALUES))


def test_classifiers_by_sums_over_their_classes():
    labels = np.array([0, 1, 0, 1, 2, 2])
    model = GaussianNB(var_smoothing=1.0)
    found = martingale_defect(model, (KEYS, labels), QUERY[:2])
    p = GaussianNB(var_smoothing=1.0).fit(KEYS, labels).predict_proba(QUERY[:2])
    change = -p[1]
    for label in range(3):
        more = np.vstack([KEYS, QUERY[:1]]), np.append(labels, label)
        change = (
            change
            + p[0, label] * GaussianNB(var_smoothing=1.0).fit(*more).predict_proba(QUERY[1:2])[0]
        )
    assert found.exact
    assert found.sizes[1] == pytest.approx(np.abs(change).sum() / 2, abs=1e-14)
    assert two_step_defect(model, (KEYS, labels), QUERY[:2]).maximum > 1e-4
    assert order_defect(LogisticRegression(), (KEYS, labels), QUERY).maximum < 1e-6
    with pytest.raises(UnsupportedError, match="predict_proba"):
        as_predictor(LinearSVC())
    heard = []
    (row,) = measure_coherence([model], WORLD, (4,), n_contexts=2, on_change=heard.append).rows
    assert row.order.holds()
    assert row.martingale is not None
    assert row.martingale.exact
    assert row.two_step is not None
    assert row.two_step.exact
    assert row.distance is None
    assert [each.done for each in heard] == list(range(N_STEPS))


@pytest.mark.parametrize(
    "relabel",
    [
        lambda labels: labels == 1,
        lambda labels: labels.astype(float),
        lambda labels: labels[:, None],
        lambda labels: 2 * labels - 1,
        lambda labels: np.where(labels, "spam", "ham"),
        lambda labels: np.where(labels, "spam", "ham").astype(object),
        lambda labels: np.eye(2, dtype=bool)[labels],
    ],
    ids=["bool", "float", "column", "signs", "words", "objects", "one-hot"],
)
def test_labels_of_any_kind_are_classes(relabel):
    labels = np.array([0, 1, 0, 1, 1, 0])
    model, wanted = GaussianNB(var_smoothing=1.0), None
    for context in ((KEYS, labels), (KEYS, relabel(labels))):
        found = martingale_defect(model, context, QUERY)
        assert not found.holds()
        wanted = found.sizes if wanted is None else wanted
        np.testing.assert_array_equal(found.sizes, wanted)
    several = np.stack([KEYS, -KEYS]), np.stack([relabel(labels)] * 2)
    assert not martingale_defect(model, several, np.stack([QUERY] * 2)).holds()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(6, int), "at least two classes"),
        (VALUES[:, 0], "Unknown label type"),
        (np.array([0.0, 1, np.nan, 0, 1, 1]), "NaN"),
        (np.full((6, 2), 0.5), "rows of 0 and 1"),
        (np.array(["a", 1, "b", 2, "a", 1], object), "labels of classes"),
    ],
)
def test_what_are_no_labels(labels, words):
    with pytest.raises(InputError, match=words):
        martingale_defect(LogisticRegression(), (KEYS, labels), QUERY)


class Reads(eqx.Module):
    weight: jnp.ndarray

    def __call__(self, keys, values, query):
        shares = jnp.exp(self.weight * (keys @ query))
        return shares @ values / shares.sum()


class ReadsLinen(nn.Module):
    @nn.compact
    def __call__(self, keys, values, query):
        weight = self.param("weight", lambda key: jnp.ones(()))
        return jax.vmap(Reads(weight))(keys, values, query)


def with_variance(params, keys, values, query):
    mean = jax.vmap(Reads(params))(keys, values, query)
    return mean, jnp.full_like(mean, 0.5)


def ones(key, *context):
    return jnp.ones(())


class NamedPair(NamedTuple):
    """Its order is its own: what counts are the names."""

    apply: Callable[..., Any]
    init: Callable[..., Any]
    version: int = 1


def test_networks_of_all_kinds_answer_alike():
    linen = as_predictor(ReadsLinen())
    pair, named = as_predictor((ones, with_variance)), as_predictor(NamedPair(with_variance, ones))
    predictors = (as_predictor(Reads(jnp.ones(()))), linen, pair, named)
    found = [each.mean(*batch(QUERY, KEYS, VALUES)) for each in predictors]
    weights = np.exp(QUERY @ KEYS.T)
    expected = (weights @ VALUES / weights.sum(axis=1, keepdims=True))[None]
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-12)
    assert linen.law(*batch(QUERY, KEYS, VALUES)) is None
    assert np.all(pair.law(*batch(QUERY, KEYS, VALUES)).variance == 0.5)


def test_a_predictor_that_is_given_stays_as_it_is():
    one = as_predictor(Ridge(), name="one")
    two = as_predictor(one, name="two", noise_variance=0.5, linear=True)
    assert (one.name, one.noise_variance, one.linear) == ("one", None, None)
    assert (two.name, two.noise_variance, two.linear) == ("two", 0.5, True)


def test_networks_get_one_batch_of_all_contexts():
    """Also PyTorch: a loop over contexts took a call for each query."""
    calls = []

    def apply(params, keys, values, query):
        calls.append(query.shape)
        return values.mean(axis=1)

    many = np.stack([QUERY] * 4), np.stack([KEYS] * 4), np.stack([VALUES] * 4)
    found = as_predictor((ones, apply)).mean(*many)
    assert found.shape == (4, 3, 1)
    assert set(calls) == {(12, 2)}


def test_estimators_use_one_thread():
    """OpenMP threads that wait for each other make small fits many times slower."""
    seen = []

    class Looks(Ridge):
        def fit(self, X, y):
            seen.extend(x["num_threads"] for x in threadpool_info() if x["user_api"] == "openmp")
            return super().fit(X, y)

    with threadpool_limits(2, user_api="openmp"):
        as_predictor(Looks()).mean(*batch(QUERY, KEYS, VALUES))
    assert set(seen) == {1}


def noisy(keys, values, query):
    return values[0] + RNG.normal()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda keys, values, query: values[0] * np.nan, "NaN"),
        (lambda keys, values, query: np.ones(3), r"shape \(3,\) in one call.*\(1,\) or a number"),
        (lambda keys, values, query: (1.0, np.ones(3)), r"variance of shape \(3,\) in one call"),
        (lambda keys, values, query: (1.0, 2.0, 3.0), r"tuple of 3.*pair \(mean, variance\)"),
        (lambda keys, values, query: np.ones(1 + int(query[0] > 0)), "at every call"),
        (lambda keys, values, query: (1.0, -1.0), "variance of -1, not > 0"),
        (lambda keys, values, query: "high", "no array of numbers"),
        (noisy, "between two equal calls"),
    ],
)
def test_what_cannot_be_measured_is_refused(target, words):
    with pytest.raises(InputError, match=words):
        order_defect(target, (KEYS, VALUES), QUERY)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda tokens: [0.5, 0.6], "no probabilities"),
        (lambda tokens: [np.nan, 0.5], "NaN"),
        (lambda tokens: list(np.ones(1 + len(tokens)) / (1 + len(tokens))), "shape"),
        (lambda tokens: (lambda p: [p, 1 - p])(RNG.random()), "between two equal calls"),
    ],
)
def test_letters_that_cannot_be_measured_are_refused(target, words):
    with pytest.raises(InputError, match=words):
        order_defect(target, [0, 1])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (3, "target int must be an Attention"),
        (Ridge, "not the class Ridge"),
        (lambda one, two: one, "2 arguments"),
        (SphereWorld(random_rotations(0, 2, 3)), "neither letters nor Gaussian"),
        (FiniteAtoms([1.0], [[0.5, 0.5]], answers=[[1.0]]), "something else than its tokens"),
    ],
)
def test_what_is_no_predictor(target, words):
    with pytest.raises(FinettiError, match=words):
        as_predictor(target)


class Sampler:
    def sample(self, rng, tokens):
        return rng.integers(2)


def test_draws_of_letters_say_how_many():
    with pytest.raises(InputError, match="n_letters=2"):
        as_predictor(Sampler())
    found = as_predictor(Sampler(), n_letters=2)
    assert order_defect(found, [0, 1, 1], n_paths=50).holds()
    with pytest.raises(InputError, match="drew letters"):
        order_defect(as_predictor(Sampler(), n_letters=1), [0, 0], n_paths=50)


def test_targets_by_name(tmp_path):
    assert load_predictor("neighbors").name == "neighbors"
    (tmp_path / "mine.py").write_text("def coin(tokens):\n    return [0.5, 0.5]\n")
    assert load_predictor("./mine.py:coin", tmp_path).n_letters == 2
    for name in ("softmux", "./mine.py:other"):
        with pytest.raises(FinettiError):
            load_predictor(name, tmp_path)
    with pytest.raises(InputError, match="3 letters"):
        measure_coherence([lambda tokens: [0.2, 0.3, 0.5]], BetaBernoulli())
    with pytest.raises(InputError, match="context of 2 tokens"):
        order_defect(load_predictor("neighbors"), (KEYS[:2], VALUES[:2]), QUERY)


def test_a_mean_that_is_not_linear_has_an_order_and_a_distance_only():
    def curved(keys, values, query):
        return np.tanh(values).mean(axis=0)

    small = {"n_contexts": 2, "n_queries": 2, "n_sequences": 5}
    row = measure_coherence([curved], WORLD, [4], **small).rows[0]
    assert row.order.holds()
    assert row.martingale is row.two_step is None
    assert row.to_dict()["martingale"] is None
    table = measure_coherence([curved], WORLD, [4], **small)
    assert table.headline == "curved is undecided (martingale and two-step not measured)"
    assert "noise_variance=…" in table.notes[-1]
    loud = as_predictor(curved, noise_variance=0.5)
    assert measure_coherence([loud], WORLD, [4], **small).rows[0].martingale is not None


def test_a_defect_at_any_length_counts():
    """Coherent at the longest context, which the target knows, and not at a shorter one."""

    def mixed(tokens):
        return [0.5, 0.5] if len(tokens) > 5 else [0.5 - 0.1 * tokens[-1], 0.5 + 0.1 * tokens[-1]]

    table = measure_coherence([mixed, lambda tokens: [0.5, 0.5]], BetaBernoulli(), (4, 8))
    assert all(row.order.holds() for row in table.rows[2:])
    assert table.headline == "1 of 2 coherent: <lambda>"
    assert table.table().columns[-1] == "defects at"
    assert [row[-1] for row in table.table().rows] == ["4", "none"]
    assert [each["defects_at"] for each in table.to_dict()["verdicts"]] == [[4], []]
    assert "defects at" not in table.table(4).columns
    alone = measure_coherence([mixed], BetaBernoulli(), (4, 8))
    assert alone.headline == "mixed is not coherent"


def test_what_is_not_measured_is_no_verdict():
    def mean(keys, values, query):
        return values.sum(axis=0) / (1 + len(values))

    def last(keys, values, query):
        return values[-1]

    small = {"n_contexts": 2, "n_queries": 2, "n_sequences": 5}
    table = measure_coherence([mean, WORLD, last], WORLD, [4], **small)
    assert table.headline == (
        "1 of 3 coherent: exact, gaussian-process; undecided: mean (two-step not measured)"
    )
    found = [each.text for each in table.verdicts]
    assert found == ["undecided", "coherent", "not coherent"]
    table = measure_coherence([mean, last], WORLD, [4], **small)
    assert table.headline == "0 of 2 coherent; undecided: mean (two-step not measured)"


def test_a_bayesian_linear_model_has_a_law():
    """Its return_std is √(1/α + xᵀΣx): the noise of a new value is in it."""
    asked = batch(QUERY, KEYS, VALUES)
    law = as_predictor(BayesianRidge()).law(*asked)
    model = BayesianRidge().fit(KEYS, VALUES[:, 0])
    rows = QUERY - model.X_offset_
    variance = 1 / model.alpha_ + np.einsum("qi,ij,qj->q", rows, model.sigma_, rows)
    np.testing.assert_allclose(law.variance[0, :, 0], variance, rtol=1e-9)
    for other in (ARDRegression(), make_pipeline(StandardScaler(), BayesianRidge())):
        assert as_predictor(other).law(*asked) is not None
    small = {"n_contexts": 2, "n_queries": 2, "n_sequences": 5, "n_samples": 10}
    table = measure_coherence([BayesianRidge()], WORLD, [6], **small)
    assert table.verdicts[0].not_measured == ()


def centers(keys, values, query):
    values -= values.mean(axis=0)
    return values[0]


def forgets(tokens):
    tokens[:] = 0
    return [0.5, 0.5]


class Overwrites:
    def sample(self, rng, keys, values, query):
        keys.sort(axis=0)
        return values[0]


@pytest.mark.parametrize("target", [centers, forgets, Overwrites()])
def test_a_target_that_writes_into_its_arguments_is_refused(target):
    letters = target is forgets
    context = np.array([0, 1]) if letters else (KEYS.copy(), VALUES.copy())
    with pytest.raises(InputError, match="writes into its arguments; copy them first"):
        order_defect(target, context, None if letters else QUERY)
    if not letters:
        np.testing.assert_array_equal(context[0], KEYS)
        np.testing.assert_array_equal(context[1], VALUES)


def test_an_estimator_overwrites_copies():
    keys = KEYS.copy()
    assert order_defect(Ridge(copy_X=False), (keys, VALUES), QUERY).holds()
    np.testing.assert_array_equal(keys, KEYS)


def test_a_function_may_answer_in_one_array():
    room = np.zeros(1)

    def first(keys, values, query):
        room[:] = query[0]
        return room

    found = as_predictor(first).mean(*batch(QUERY, KEYS, VALUES))
    np.testing.assert_array_equal(found[0], QUERY[:, :1])


PROCESS = as_predictor(WORLD)


def process_law(keys, values, query):
    law = PROCESS.law(query[None, None], keys[None], values[None])
    return law.mean[0, 0], law.variance[0, 0]


def number_and_number(keys, values, query):
    mean, variance = process_law(keys, values, query)
    return float(mean[0]), float(variance[0])


@pytest.mark.parametrize("function", [process_law, number_and_number])
def test_functions_answer_with_a_mean_and_a_variance(function):
    found, exact = as_predictor(function), PROCESS.law(*batch(QUERY, KEYS, VALUES))
    assert two_step_defect(function, (KEYS, VALUES), QUERY).holds()  # asked before anything else
    law = found.law(*batch(QUERY, KEYS, VALUES))
    np.testing.assert_array_equal(law.mean, exact.mean)
    np.testing.assert_array_equal(law.variance, exact.variance)
    table = measure_coherence([function], WORLD, [3], n_contexts=2, n_queries=2, n_sequences=5)
    assert table.verdicts[0].text == "coherent"
    assert table.rows[0].distance.divergence < 1e-12
    averaged = order_averaged(function, 6)
    assert averaged.law(*batch(QUERY, KEYS, VALUES)) is not None


def test_one_variance_serves_several_values():
    two = np.concatenate([VALUES, -VALUES], axis=1)

    def known(keys, values, query):
        return values.mean(axis=0), 0.5

    law = as_predictor(known).law(*batch(QUERY, KEYS, two))
    np.testing.assert_array_equal(law.variance, np.full((1, 3, 2), 0.5))
    with pytest.raises(
        InputError, match=r"mean of shape \(\) in one call. It must be of shape \(2,"
    ):
        order_defect(lambda keys, values, query: (0.5, 0.5), (KEYS, two), QUERY)


def test_networks_may_answer_with_numbers():
    def apply(params, keys, values, query):
        return values.mean(axis=(1, 2)), jnp.full(len(values), jnp.exp(params))

    assert as_predictor((ones, apply)).law(*batch(QUERY, KEYS, VALUES)).mean.shape == (1, 3, 1)
    assert not two_step_defect((ones, apply), (KEYS, VALUES), QUERY).holds()
