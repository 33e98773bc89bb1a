"""The paper's learner at the paper's settings: minutes, so that only `-m slow` runs this.

Tests are compiled without optimization (conftest.py), which is wrong for long ones: `make
test-slow` compiles as users' programs are.
"""

import pytest

from finetti.probe import ProbeTrial
from finetti.studies.trials import Trial

N_TRIALS = 12


def successes(n_trials, **given):
    """How many of the trials with the seeds 0, 1, … find AND of three bits."""
    kind = ProbeTrial()
    params = kind.resolve({"function": "and", "sparsity": 3, "ambiguous": "keep", **given})
    found = kind.run_cohort([Trial(str(seed), params, seed) for seed in range(n_trials)])
    return sum(each.metrics["success"] for each in found)


@pytest.mark.slow
def test_forty_samples_are_too_few_and_two_hundred_enough():
    assert successes(N_TRIALS, context_length=100, n_samples=40) <= 4
    assert successes(N_TRIALS, context_length=100, n_samples=200) >= 9


@pytest.mark.slow
def test_the_critical_sample_size_grows_more_slowly_than_the_context():
    """Six times the samples for eight times the context: a linear law would need eight times."""
    quick = {"options": {"dropout": "none", "clip_norm": None}, "iterations": 600}
    assert successes(16, context_length=50, n_samples=40, **quick) <= 7
    assert successes(16, context_length=400, n_samples=240, **quick) >= 9


@pytest.mark.slow
def test_parity_of_ten_bits_is_learned_online():
    params = {"function": "parity", "sparsity": 3, "context_length": 10, "online": True}
    kind = ProbeTrial()
    resolved = kind.resolve({**params, "iterations": 4000})
    (found,) = kind.run_cohort([Trial("0", resolved, 0)])
    assert found.metrics["success"] == 1
