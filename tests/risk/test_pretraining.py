"""A network that predicts the masked token, frozen, and read by other tasks."""

import jax
import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.latent import FiniteAtoms, GaussianEmission, LinearGaussian
from finetti.risk import (
    AttentionNetwork,
    empirical_risk,
    measure_transfer,
    predictions,
    pretrain,
)

WORLD = FiniteAtoms(
    prior=[0.5, 0.3, 0.2], emission=[[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.1, 0.7]]
)
TASK = FiniteAtoms(WORLD.prior, WORLD.emission, GaussianEmission([[1.0], [0.0], [-1.0]], 0.1))
SMALL = {"context_length": 3, "seed": 0, "iterations": 100, "polish": 0}


@pytest.fixture(scope="module")
def pretrained():
    first = AttentionNetwork.init(jax.random.key(0), token_dimension=3, out_dimension=3)
    return pretrain(first, WORLD, 300, **SMALL)


@pytest.fixture(scope="module")
def data():
    return TASK.encode(TASK.sample(1, 300, 3))


def test_pretraining_predicts_letters_better_than_their_frequencies(pretrained):
    fresh = WORLD.encode(WORLD.sample(2, 4000, 3))
    constant = np.sum((fresh.target - fresh.target.mean(axis=0)) ** 2, axis=1).mean()
    assert empirical_risk(pretrained.network, fresh) < constant
    assert "predict the masked token" in str(pretrained)


def test_the_frozen_attention_under_its_own_aggregation_is_the_network(pretrained, data):
    again = pretrained.with_aggregation(pretrained.network.aggregation)
    np.testing.assert_allclose(
        predictions(again, data), predictions(pretrained.network, data), atol=1e-6
    )


def test_the_closed_form_is_least_squares_on_the_readout(pretrained, data):
    readout = predictions(pretrained.frozen, data)
    weights = np.linalg.lstsq(readout, data.target, rcond=None)[0]
    found = predictions(pretrained.fit_aggregation(data), data)
    np.testing.assert_allclose(found, readout @ weights, atol=1e-4)
    ridge = np.linalg.solve(readout.T @ readout + 2.0 * np.eye(3), readout.T @ data.target)
    found = pretrained.fit_aggregation(data, ridge=2.0).aggregation.weights
    np.testing.assert_allclose(found, ridge, atol=1e-4)


def test_both_sides_of_the_theorem_for_this_network(pretrained):
    same = measure_transfer(pretrained, TASK)
    assert same.aggregation_error < 1e-5
    assert 0 < same.excess <= same.aligned_excess + 1e-9 <= same.bound.value + 1e-8
    other = measure_transfer(pretrained, TASK, mask_token=[3.0, 0.0, 0.0])
    assert other.aggregation_error > 10 * same.aggregation_error
    assert other.ratio <= 1
    # E^PT on fresh sequences, where it is a difference of two risks.
    draw = WORLD.sample(3, 20_000, 3)
    fresh = WORLD.encode(draw)
    best = WORLD.predict(draw.tokens).mean
    learned = predictions(pretrained.network, fresh)
    more = np.sum((fresh.target - learned) ** 2 - (fresh.target - best) ** 2, axis=1)
    error = more.std(ddof=1) / np.sqrt(len(more))
    assert abs(more.mean() - same.pretraining_excess) < 5 * error


def test_what_cannot_be_is_refused(pretrained, data):
    network = pretrained.network
    with pytest.raises(InputError, match="answers the next token"):
        pretrain(network, TASK, 10, **SMALL)
    with pytest.raises(InputError, match="an AttentionNetwork"):
        pretrain(lambda tokens, mask: tokens, WORLD, 10, **SMALL)
    with pytest.raises(InputError, match="the pretraining world with other answers"):
        measure_transfer(pretrained, FiniteAtoms([0.2, 0.3, 0.5], WORLD.emission))
    with pytest.raises(InputError, match="FiniteAtoms with letters"):
        measure_transfer(type(pretrained)(network, LinearGaussian(), 3, pretrained.minimum), TASK)
    with pytest.raises(InputError, match="3 finite numbers"):
        measure_transfer(pretrained, TASK, mask_token=[1.0])
    with pytest.raises(InputError, match="ridge"):
        pretrained.fit_aggregation(data, ridge=-1.0)
