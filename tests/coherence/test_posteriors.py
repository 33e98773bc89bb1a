"""Sampling a predictor's own future, and its distance to the truth."""

import numpy as np
import pytest
from scipy import stats

from finetti.coherence import (
    as_predictor,
    distance_to_truth,
    martingale_posterior,
    measure_coherence,
)
from finetti.coherence.coherence_page import coherence_page
from finetti.coherence.predictors.context_predictor import LawSampler
from finetti.core.errors import InputError
from finetti.latent import BetaBernoulli, LinearGaussian, Pairs

WORLD = LinearGaussian(key_dimension=2, value_dimension=1)


def test_the_future_of_the_urn_is_beta_binomial():
    found = martingale_posterior(
        BetaBernoulli(),
        [1, 1, 0],
        lambda tokens: tokens[:, 3:].sum(axis=1),
        horizon=8,
        n_paths=3000,
        seed=0,
    )
    law = stats.betabinom(8, 3, 2)
    assert abs(found.mean - law.mean()) < 5 * law.std() / np.sqrt(3000)
    assert found.standard_deviation == pytest.approx(law.std(), rel=0.1)
    low, high = found.interval(0.9).low, found.interval(0.9).high
    assert (low, high) == (law.ppf(0.05), law.ppf(0.95))
    assert "3000" in str(found)


def test_the_future_of_the_linear_world_is_its_posterior():
    start = WORLD.sample(0, 2, 3).tokens
    places = np.random.default_rng(1).normal(size=(6, 2))
    found = martingale_posterior(
        WORLD,
        tuple(start),
        lambda pairs: WORLD.posterior(pairs).mean[:, 0],
        places=places,
        n_paths=1000,
        seed=0,
    )
    before = WORLD.posterior(start)
    keys = np.concatenate([start.keys, np.broadcast_to(places, (2, 6, 2))], axis=1)
    after = WORLD.posterior(Pairs(keys, np.zeros((2, 9, 1))))
    told = before.variance[:, 0] - after.variance[:, 0]
    assert found.draws.shape == (2, 1000, 2)
    assert np.all(np.abs(found.mean - before.mean[:, 0]) < 5 * np.sqrt(told / 1000))
    np.testing.assert_allclose(found.standard_deviation**2, told, rtol=5 * np.sqrt(2 / 1000))


def test_what_a_future_needs():
    with pytest.raises(InputError, match="horizon"):
        martingale_posterior(BetaBernoulli(), [1, 0], np.mean)
    with pytest.raises(InputError, match="places"):
        martingale_posterior(WORLD, (np.ones((3, 2)), np.ones(3)), np.mean)
    with pytest.raises(InputError, match="one answer per path"):
        martingale_posterior(BetaBernoulli(), [1, 0], np.mean, horizon=2)
    mean = as_predictor(lambda keys, values, query: values.mean(axis=0))
    with pytest.raises(InputError, match="no law"):
        martingale_posterior(mean, (np.ones((3, 2)), np.ones(3)), np.mean, places=np.ones((1, 2)))


def test_distance_by_the_closed_form():
    exact = as_predictor(WORLD)
    doubled = as_predictor(WORLD)
    inner = doubled.answer
    doubled.answer = lambda *given: (inner(*given)[0], 4 * inner(*given)[1])
    table = distance_to_truth(exact, WORLD, [2, 5], 400)
    for each in table.distances:
        assert each.value == each.divergence == 0
        assert each.p_value > 0.01
        assert abs(each.coverage - 0.9) < 4 * np.sqrt(0.09 / 400)
    wide = distance_to_truth(doubled, WORLD, [2], 400).distances[0]
    assert wide.value == 0
    assert wide.divergence == pytest.approx((0.25 - 1 + np.log(4)) / 2, abs=1e-12)
    assert wide.score == pytest.approx(0.25, abs=0.1)
    assert wide.p_value == 0.01
    assert "nats" in str(table)


def test_distance_of_letters_is_their_divergence():
    world = BetaBernoulli()
    found = distance_to_truth(lambda tokens: [0.5, 0.5], world, [4], 300).distances[0]
    # By its own count of ones: p(h) is uniform, and p = (1 + h)/6 the exact answer.
    p = (1 + np.arange(5)) / 6
    truth = np.mean(np.log(2) + p * np.log(p) + (1 - p) * np.log(1 - p))
    assert found.interval[0] - 0.02 <= truth <= found.interval[1] + 0.02
    assert distance_to_truth(world, world, [4], 50).distances[0].value < 1e-15
    certain = distance_to_truth(lambda tokens: [0.9, 0.1], world, [4], 300).distances[0]
    assert certain.p_value == 0.01


@pytest.mark.parametrize("world", [WORLD, BetaBernoulli()])
def test_the_noise_of_draws_is_no_distance(world):
    """An interval excludes 0 with probability 0.025, and two of five with 0.006."""
    exact = LawSampler(as_predictor(world))
    found = [distance_to_truth(exact, world, [4], 200, seed).distances[0] for seed in range(5)]
    assert sum(each.interval[0] == 0 for each in found) >= 4
    noisy = next(each for each in found if each.is_none)
    assert noisy.text.startswith("≤ 0.0")
    assert noisy.n_draws == 200


def test_the_distance_of_draws_is_that_of_their_law():
    """Of the same contexts, so that only the draws differ."""
    flawed = as_predictor(lambda keys, values, query: 0.8 * values[0], noise_variance=0.5)
    exact = distance_to_truth(flawed, WORLD, [4], 200).distances[0]
    found = distance_to_truth(LawSampler(flawed), WORLD, [4], 200).distances[0]
    assert found.value == pytest.approx(exact.value, rel=0.05)
    assert found.text == f"{found.value:.2g}"


def test_every_row_has_its_own_unit():
    world = BetaBernoulli()
    fair = as_predictor(lambda tokens: [0.5, 0.5], name="fair")
    small = {"n_contexts": 2, "n_sequences": 50, "n_paths": 50}
    table = measure_coherence([fair, LawSampler(fair)], world, [3], **small)
    assert table.table().columns[-1] == "distance"
    assert [row[-1].split()[-1] for row in table.table().rows] == ["nats", "probability"]
    assert [row["distance"]["unit"] for row in table.to_dict()["rows"]] == ["nats", "probability"]
    page = coherence_page(table)
    titles = [each.title for each in page.sections]
    assert titles[-2:] == ["Distance to the truth, nats", "Distance to the truth, probability"]
