"""What exhaustive search costs is known before it begins."""

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.probe import ProbeTrial
from finetti.probe.tasks import consistent_sets as ambiguity
from finetti.probe.tasks.hidden_rule import make_rule
from finetti.probe.tasks.search_cost import refuse_hopeless, typical_visits
from finetti.probe.tasks.set_search import Hits, PackedSample

TASKS = [  # function, s, T, m, noise
    ("and", 3, 400, 40, 0.0),
    ("and", 3, 300, 12, 0.0),
    ("and", 4, 100, 30, 0.0),
    ("or", 3, 300, 20, 0.0),
    ("majority", 3, 150, 30, 0.0),
    ("parity", 3, 100, 30, 0.0),
    ("threshold:2", 4, 80, 40, 0.0),
    ("x0 & (x1 | ~x2)", None, 80, 30, 0.0),
    ("and", 3, 100, 60, 0.1),
]


@pytest.mark.parametrize(("name", "s", "length", "m", "noise"), TASKS)
def test_the_estimate_is_what_a_search_looks_at(name, s, length, m, noise):
    """Within a factor of 8: samples vary, by the number of their positive ones most of all."""
    rule, rng = make_rule(name, s, length, label_noise=noise), np.random.default_rng(0)
    visits = []
    for _ in range(9):
        task = rule.draw(rng)
        bits, labels = task.sample(rng, m)
        errors = int((task.labels(bits) != labels).sum())
        hits = Hits(2 ** (errors + 1).bit_length() - 1 if errors else 0, 0, 10**9)
        ambiguity._search_all_orders(rule, PackedSample.of(bits, labels), hits)
        visits.append(hits.visits)
    assert 1 / 8 < typical_visits(rule, m) / np.median(visits) < 8


@pytest.mark.parametrize(
    ("rule", "m", "words"),
    [
        (("and", 5, 3000), 20, "about .* partial sets, more than max_visits = 1.0e"),
        (("and", 17, 40), 20, "at most 16 hidden bits"),
        (("x0 & (x1 | x2 & (x3 | x4 & (x5 | x6 & x7)))", None, 40), 20, "at most 7 hidden bits"),
        (("parity", 6, 3000), 60, "half sets"),
        (("parity", 4, 1000), 10, "or more samples"),
    ],
)
def test_what_would_be_given_up_is_refused_at_once(rule, m, words):
    with pytest.raises(InputError, match=words):
        refuse_hopeless(make_rule(*rule), m, 10**8)
    # The same when a study is planned, and a larger limit is the user's choice.
    name, sparsity, length = rule
    params = {"function": name, "sparsity": sparsity, "context_length": length, "n_samples": m}
    with pytest.raises(InputError, match=words):
        ProbeTrial().resolve({**params, "learner": "exhaustive", "success_accuracy": 0.999999})


def test_what_can_be_searched_is_not_refused():
    for name, s, length, m, noise in TASKS:
        refuse_hopeless(make_rule(name, s, length, label_noise=noise), m, 10**8)
    refuse_hopeless(make_rule("parity", 4, 1000), 60, 10**8)
    with pytest.raises(InputError, match=r"max_visits = 1\.0e"):
        refuse_hopeless(make_rule("and", 3, 400), 40, 1000)


def test_the_first_trials_of_all_cells_come_first(tmp_path):
    """A run that is interrupted knows a little of every cell."""
    from finetti.probe import Experiment
    from finetti.studies.coordinator import WaitingTrials

    experiment = Experiment("and", 2, (10, 20), (5, 40, 100), 4, tmp_path / "x", ("tree",))
    plan = experiment.study("tree").plan
    waiting = WaitingTrials(plan, plan.trial_positions)
    trials = [trial for task in iter(lambda: waiting.take(1), None) for trial in task.trials]
    assert {trial.id for trial in trials} == set(plan.trial_positions)
    assert [plan.trial_positions[trial.id][1] for trial in trials] == [
        r for r in range(4) for _ in range(6)
    ]
