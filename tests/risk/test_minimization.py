"""Empirical risk minimization against least squares, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti import core
from finetti.risk import empirical_risk, minimize_risk, polish_network, predictions
from finetti.risk.parameters import flatten, redraw, unflatten
from finetti.training import cohort
from finetti.training.train_program import run_steps

RNG = np.random.default_rng(0)
TOKENS = RNG.normal(size=(40, 3, 2))
DATA = (TOKENS, np.zeros((40, 2)), RNG.normal(size=(40, 1)))


class MeanToken(eqx.Module):
    """Linear in the mean token: its minimum is least squares."""

    weights: jax.Array

    def __call__(self, tokens, mask_token):
        return jnp.mean(tokens, axis=0) @ self.weights


def _least() -> float:
    means = TOKENS.mean(axis=1)
    return float(np.mean((DATA[2] - means @ np.linalg.lstsq(means, DATA[2])[0]) ** 2))


def test_minimum_is_least_squares():
    start = MeanToken(jnp.array([[3.0], [-2.0]]))
    found = minimize_risk(start, DATA, seed=0, restarts=3, iterations=60, slots=3)
    assert found.best_risk == pytest.approx(_least(), rel=1e-6)
    assert found.slope < 1e-6  # stationary (5.12)
    assert found.best_risk <= min(found.start_risks) <= found.risk == found.start_risks[0]
    assert len(found.starts) == 3
    assert found.starts[1].weights.dtype == jnp.float32
    assert "smallest empirical risk found" in str(found)


def test_batches_reach_it_too():
    start = MeanToken(jnp.array([[3.0], [-2.0]]))
    found = minimize_risk(start, DATA, seed=0, iterations=60, batch_size=8, learning_rate=0.1)
    assert found.best_risk == pytest.approx(_least(), rel=1e-6)
    assert found.risk < empirical_risk(start, DATA)


def test_a_prime_number_of_steps_is_one_program_call(monkeypatch):
    calls = []

    def counted(fixed, moving):
        calls.append(moving)
        return run_steps(fixed, moving)

    monkeypatch.setattr(cohort, "run_steps", counted)
    minimize_risk(MeanToken(jnp.ones((2, 1))), DATA, seed=0, iterations=211, polish=0)
    assert len(calls) == 1


def test_polish_alone_and_none():
    start = MeanToken(jnp.ones((2, 1)))
    polished, slope = polish_network(start, DATA)
    assert empirical_risk(polished, DATA) == pytest.approx(_least(), rel=1e-6)
    assert slope < 1e-6
    same, slope = polish_network(start, DATA, iterations=0)
    np.testing.assert_array_equal(same.weights, start.weights)
    miss = DATA[2] - TOKENS.mean(axis=1) @ np.ones((2, 1))
    by_hand = np.linalg.norm(-2 * np.mean(miss * TOKENS.mean(axis=1), axis=0))
    assert slope == pytest.approx(by_hand, rel=1e-9)


def test_parts_of_predictions_join(monkeypatch):
    start = MeanToken(jnp.ones((2, 1)))
    whole = predictions(start, DATA)
    monkeypatch.setattr("finetti.risk.minimization.CHUNK", 16)
    np.testing.assert_allclose(predictions(start, DATA), whole, rtol=1e-6)


def test_parameters_go_there_and_back():
    network = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    flat = flatten(network)
    np.testing.assert_array_equal(flatten(unflatten(2 * flat, network)), 2 * flat)
    other = redraw(network, jax.random.key(1))
    assert flatten(other).shape == flat.shape
    assert not np.allclose(flatten(other), flat)
    constant = {"gain": jnp.ones(3), "bandwidth": jnp.asarray(2.0)}
    assert eqx.tree_equal(redraw(constant, jax.random.key(1)), constant)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((TOKENS[0], DATA[1], DATA[2]), "tokens of shape"),
        ((TOKENS, DATA[1][:3], DATA[2]), "mask tokens"),
        ((TOKENS, DATA[1], DATA[2][:, 0]), "targets"),
    ],
)
def test_wrong_data_is_refused(data, message):
    with pytest.raises(core.InputError, match=message):
        minimize_risk(MeanToken(jnp.ones((2, 1))), data, seed=0)


class Fixed(eqx.Module):
    def __call__(self, tokens, mask_token):
        return tokens[0, :1]


def test_nothing_to_train_is_refused():
    with pytest.raises(core.InputError, match=r"real numbers to train\. Got Fixed"):
        minimize_risk(Fixed(), DATA, seed=0)
    with pytest.raises(core.InputError, match="an Equinox, Flax or PyTorch module, a pair"):
        minimize_risk(lambda token_dimension: token_dimension, DATA, seed=0)


@pytest.mark.parametrize("answer", [lambda y: y[0], lambda y: jnp.tile(y, 2), lambda y: y[None]])
def test_answers_of_another_shape_are_refused(answer):
    """They would be stretched to an n × n table, and its mean be called the risk."""

    class Other(eqx.Module):
        inner: MeanToken

        def __call__(self, tokens, mask_token):
            return answer(self.inner(tokens, mask_token))

    network = Other(MeanToken(jnp.ones((2, 1))))
    with pytest.raises(core.InputError, match=r"answers a batch with shape \(40, 1\)"):
        minimize_risk(network, DATA, seed=0, iterations=1)
    with pytest.raises(core.InputError, match=r"answers a batch with shape \(40, 1\)"):
        polish_network(network, DATA)


def test_loss_is_one_number_per_sequence():
    def total(prediction, target):
        return jnp.sum((prediction - target) ** 2)

    with pytest.raises(core.InputError, match="one number per sequence"):
        minimize_risk(MeanToken(jnp.ones((2, 1))), DATA, seed=0, loss=total, iterations=1)
