"""Scoring a part decides exactly as scoring all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.probe.tasks.validation import allowed_errors, score_until
from finetti.probe.trials.jax_trials import padded_size


@given(
    rate=st.floats(0, 0.03),
    seed=st.integers(0, 1000),
    n_samples=st.sampled_from([1, 999, 1000, 3500, 10_000]),
    level=st.sampled_from([0.5, 0.98, 0.99, 0.999]),
)
def test_the_decision_is_that_of_scoring_everything(rate, seed, n_samples, level):
    wrong = np.random.default_rng(seed).random(n_samples) < rate
    allowed = allowed_errors(n_samples, level)
    score = score_until(lambda a, b: int(wrong[a:b].sum()), n_samples, allowed)
    assert (score.errors <= allowed) == ((~wrong).sum() / n_samples > level)
    assert score.errors == wrong[: score.n_scored].sum()
    if score.errors <= allowed:
        assert score.n_scored == n_samples


@pytest.mark.parametrize("level", [0.9, 0.99, 0.995, 1 / 3])
def test_the_largest_allowed_number_is_allowed_and_one_more_is_not(level):
    for n_samples in (1, 7, 100, 10_000):
        allowed = allowed_errors(n_samples, level)
        assert (n_samples - allowed) / n_samples > level
        assert not (n_samples - allowed - 1) / n_samples > level


def test_padding_wastes_at_most_half_and_has_few_sizes():
    sizes = [padded_size(n) for n in range(1, 1000)]
    assert all(n <= size for n, size in enumerate(sizes, 1))
    assert all(size <= 1.5 * n for n, size in enumerate(sizes, 1) if n > 64)
    assert len(set(sizes)) == 9
