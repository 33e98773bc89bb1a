"""The baselines find what they can, each at a size that takes a moment."""

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.probe import load_learner, make_rule


def draw(function, sparsity, context_length, n_samples):
    task = make_rule(function, sparsity, context_length).draw(np.random.default_rng(0))
    fresh = task.sample(np.random.default_rng(2), 2500)  # more than one chunk of predictions
    return task, task.sample(np.random.default_rng(1), n_samples), fresh


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("l1", {}, 1.0),
        ("tree", {}, 1.0),
        ("boosting", {"max_iter": 20, "learning_rate": 0.3}, 1.0),
        pytest.param("cme", {}, 0.95, marks=pytest.mark.filterwarnings("ignore:The search of")),
        ("rf_mlp", {"n_neurons": 200}, 0.9),
        ("rfa", {"n_heads": 20, "width": 8}, 0.9),
    ],
)
def test_a_baseline_learns_the_conjunction_of_two_bits(name, options, least):
    _, sample, (bits, labels) = draw("and", 2, 8, 80)
    learner = load_learner(name, options)
    assert learner.fingerprint() == ""
    predicted = learner.fit(*sample, seed=0).predict(bits)
    assert (predicted == labels).mean() >= least


def test_sparse_regression_works_with_one_sample_of_a_label():
    bits = np.vstack([np.zeros((9, 4)), np.ones((1, 4))])
    labels = np.repeat([0, 1], [9, 1])
    assert load_learner("l1").fit(bits, labels, seed=0).predict(bits).tolist() == labels.tolist()


@pytest.mark.parametrize("function", ["and", "parity", "majority", "x0 & (x1 | ~x2)"])
def test_exhaustive_search_finds_the_hidden_positions(function):
    task, sample, (bits, labels) = draw(function, 3, 40, 120)
    learner = load_learner("exhaustive").with_function(task.rule.function)
    found = learner.fit(*sample, seed=0)
    assert found.indices == task.indices
    assert (found.predict(bits) == labels).all()


def test_exhaustive_search_says_what_it_lacks():
    task, sample, _ = draw("majority", 5, 60, 8)
    with pytest.raises(InputError, match="by `with_function`"):
        load_learner("exhaustive").fit(*sample, seed=0)
    learner = load_learner("exhaustive", {"max_visits": 100}).with_function(task.rule.function)
    with pytest.raises(InputError, match=r"more than 100 .*partial sets"):
        learner.fit(*sample, seed=0)
