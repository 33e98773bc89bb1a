"""Positions have no favorites, and depth is no obstacle: learners trained to success, or not."""

import math
import shutil
from pathlib import Path

import pytest

from finetti.probe import ProbeTrial
from finetti.probe.tasks.trial_samples import draw_samples
from finetti.studies.trials import Trial

MATERIAL = Path(__file__).parent / "material" / "tiny.py"
STANDARD_ERRORS = 4
NETWORK = {"width": 8, "n_heads": 2, "dropout": "none", "learning_rate": 0.01, "clip_norm": None}


def outcomes(n_trials, **given):
    """Of each trial its hidden positions, and whether they were found."""
    kind = ProbeTrial()
    params = kind.resolve({"function": "and", "n_validation": 1000, "ambiguous": "keep", **given})
    trials = [Trial(f"{seed}", params, seed) for seed in range(n_trials)]
    results = kind.run_cohort(trials)
    hidden = (draw_samples(params, trial.seed).task.indices for trial in trials)
    return [(where, found.metrics["success"]) for where, found in zip(hidden, results, strict=True)]


@pytest.mark.parametrize(
    ("learner", "n_trials", "options", "fair"),
    [
        ("tree", 200, {"context_length": 16, "n_samples": 6}, True),
        # Of the sets that fit, the first one found: over all hidden sets that is as good as any.
        ("exhaustive", 300, {"context_length": 16, "n_samples": 4}, False),
        ("./tiny.py:HalfBlindTree", 200, {"context_length": 16, "n_samples": 6}, False),
        (
            "paper",
            60,
            {"context_length": 8, "n_samples": 9, "iterations": 60, "options": NETWORK},
            True,
        ),
    ],
)
def test_relabeled_positions_are_found_as_often(
    learner, n_trials, options, fair, tmp_path, monkeypatch
):
    """t → T − 1 − t takes rules of the first half to those of the second, and samples to samples:
    both halves are found equally often, up to 4 standard errors, by learners without favorites, and
    not by those that have some."""
    shutil.copy(MATERIAL, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = outcomes(n_trials, learner=learner, sparsity=1, **options)
    middle = options["context_length"] // 2
    halves = [
        [success for (position,), success in found if (position < middle) == first]
        for first in (True, False)
    ]
    rates = [sum(half) / len(half) for half in halves]
    rate = sum(success for _, success in found) / n_trials
    error = math.sqrt(rate * (1 - rate) * sum(1 / len(half) for half in halves))
    assert 0.2 < rate < 0.8  # or there would be nothing to see
    assert (abs(rates[0] - rates[1]) < STANDARD_ERRORS * error) == fair, (rates, error)


def test_a_deep_network_is_trained_to_success():
    """Two layers go through the textbook's route, with its dropout."""
    deep = {**NETWORK, "n_layers": 2, "dropout": "attention"}
    found = outcomes(
        3,
        learner="paper",
        sparsity=2,
        context_length=5,
        n_samples=64,
        iterations=300,
        options=deep,
    )
    assert sum(success for _, success in found) >= 2
