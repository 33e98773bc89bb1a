"""(5.3): the parts add up, and agree with enumeration; a user's own network and loss."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti import attention, core, kernels
from finetti.bounds import Sample
from finetti.bounds.exchangeability import SingleRisk
from finetti.core.numerics.random_keys import generator
from finetti.latent import FiniteAtoms, LinearGaussian, WorldDraw
from finetti.risk import (
    AttentionNetwork,
    NormLimits,
    decompose,
    predictions,
    risk_bound,
    squared_loss,
)
from finetti.risk.parameters import flatten, unflatten
from finetti.risk.theorems.generalization_bound import attention_class

WORLD = FiniteAtoms([0.6, 0.4], [[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]])
LENGTH = 3
FEW = {"iterations": 50, "polish": 20, "class_samples": 300, "test_samples": 4000}


@pytest.fixture(scope="module")
def found():
    network = AttentionNetwork.init(jax.random.key(0), 3, 3, limits=NormLimits(2.0, 2.0))
    return decompose(network, WORLD, 60, seed=0, context_length=LENGTH, restarts=2, **FEW)


def test_parts_add_up(found):
    total = sum(part.value for part in found.parts.values())
    assert total == pytest.approx(found.excess.value, abs=1e-14)
    assert found.optimization.value >= 0
    assert found.approximation.value > 0
    # (5.3) from the risks themselves
    risk, least = found.excess.value + found.noise, found.approximation.value + found.noise
    printed = risk - found.train_risk + found.best_train_risk - least
    assert found.generalization.value == pytest.approx(printed, abs=1e-12)


def test_expectations_agree_with_enumeration(found):
    contexts = np.array(list(itertools.product(range(3), repeat=LENGTH)))
    chances = np.exp(WORLD.log_prob(contexts))
    best = WORLD.predict(contexts).mean
    draw = WorldDraw(contexts, None, np.zeros(len(contexts), int), None)
    encoded = WORLD.encode(draw)
    cases = ((found.minimum.trained, found.excess), (found.best_of_class, found.approximation))
    for network, estimate in cases:
        excess = chances @ np.sum((predictions(network, encoded) - best) ** 2, axis=1)
        assert abs(estimate.value - excess) <= 4.5 * estimate.standard_error
    noise = chances @ (1 - np.sum(best**2, axis=1))
    assert found.noise == pytest.approx(noise, abs=0.02)
    sample = WORLD.sample(generator("finetti.risk", "training", 0), 60, LENGTH)
    constant = chances @ np.sum((WORLD.encode(sample).target.mean(axis=0) - best) ** 2, axis=1)
    assert abs(found.baseline.value - constant) <= 4.5 * found.baseline.standard_error


def test_bound_is_that_of_theorem_5_3(found):
    assert found.bound is not None
    assert found.bound.value >= found.generalization.value
    assert "5.3" in found.bound.citation
    assert found.bound.vacuous


def test_it_shows_itself(found):
    text = str(found)
    assert "upper estimate" in text
    assert "lower estimate" in text
    bars = found.chart()["data"]["values"]
    assert [bar["kind"] for bar in bars][-1] == "total"
    assert bars[-2]["to"] == pytest.approx(found.excess.value, abs=1e-12)


class MeanTokenMLP(eqx.Module):
    """A user's own: an MLP of the mean token."""

    inside: eqx.nn.MLP

    def __call__(self, tokens, mask_token):
        return jax.nn.softmax(self.inside(jnp.mean(tokens, axis=0)))


def log_loss(prediction, target):
    return -jnp.sum(target * jnp.log(prediction), axis=-1)


def test_own_network_and_loss():
    network = MeanTokenMLP(eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0)))
    options = {"seed": 0, "context_length": LENGTH, "restarts": 1, "loss": log_loss, **FEW}
    found = decompose(network, WORLD, 60, **options)
    total = sum(part.value for part in found.parts.values())
    assert total == pytest.approx(found.excess.value, abs=1e-14)
    # the excess log loss is a divergence: it cannot be far below 0
    assert found.excess.value > -4.5 * found.excess.standard_error
    assert found.bound is None
    assert "MeanTokenMLP" in found.bound_note


def test_batches_may_have_a_size(monkeypatch):
    """The class has four times the sample, unless it is said otherwise."""
    monkeypatch.setattr("finetti.risk.excess_risk.MIN_CLASS_SAMPLES", 30)
    network = MeanTokenMLP(eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0)))
    options = {"seed": 0, "context_length": LENGTH, "restarts": 1, **FEW, "class_samples": None}
    found = decompose(network, WORLD, 20, batch_size=10, **options)
    assert found.excess.value > 0
    assert found.class_samples == 80


def test_one_test_sequence_is_refused():
    """It has no standard error, which was NaN."""
    network = AttentionNetwork.init(jax.random.key(0), 3, 3)
    with pytest.raises(core.InputError, match="≥ 2"):
        decompose(network, WORLD, 60, seed=0, context_length=LENGTH, test_samples=1)


def test_bound_is_the_theorem_at_the_lengths_of_the_sample():
    """|y − f| ≤ a + b for ‖y‖ ≤ a, ‖f‖ ≤ b: the squared loss is 2(a + b)-Lipschitz there."""
    world = LinearGaussian(key_dimension=1, value_dimension=1)
    data = world.encode(world.sample(0, 10, 3))
    limits = NormLimits(attention=2.0, feed_forward=2.0, output=0.5)
    network = AttentionNetwork.init(jax.random.key(0), 2, 1, limits=limits)
    reach = float(np.abs(data.target).max()) + 0.5
    tokens = float(np.linalg.norm(data.tokens, axis=-1).max())
    longest = max(tokens, float(np.linalg.norm(data.mask_token, axis=-1).max()))
    sizes = {"input_norm": longest, "loss_lipschitz": 2 * reach, "loss_bound": reach**2}
    wanted = SingleRisk(attention_class(network)).evaluate(Sample(10, 3, **sizes, delta=0.05))
    assert risk_bound(network, data).log_value == pytest.approx(wanted.log_value, rel=1e-12)


def test_bound_says_what_it_rests_on():
    world = LinearGaussian(key_dimension=1, value_dimension=1)
    data = world.encode(world.sample(0, 10, 3))
    free = AttentionNetwork.init(jax.random.key(0), 2, 1)
    assert any("limits" in note for note in risk_bound(free, data).notes)
    half = AttentionNetwork.init(jax.random.key(0), 2, 1, limits=NormLimits(attention=1.0))
    with pytest.raises(core.UnsupportedError, match="every limit"):
        risk_bound(half, data)
    wide = attention.KernelSmoother(kernels.RBF(lengthscale=3.0))
    other = AttentionNetwork.init(jax.random.key(0), 2, 1, attention=wide)
    with pytest.raises(core.UnsupportedError, match="bandwidth"):
        risk_bound(other, data)
    callable_one = AttentionNetwork.init(jax.random.key(0), 2, 1, aggregation=lambda x: x[:, :1])
    with pytest.raises(core.UnsupportedError, match="linear"):
        risk_bound(callable_one, data)


def test_class_contains_the_network():
    """Also where queries have one entry and answers three: the values are the larger matrix."""
    network = AttentionNetwork.init(
        jax.random.key(0), 3, 3, head_dimension=1, limits=NormLimits(1.5, 1.0)
    )
    network = unflatten(10 * flatten(network).astype(np.float32), network)
    acting, found = network.limited(), attention_class(network)
    values = np.asarray(acting.value_weights) @ np.asarray(acting.aggregation.weights)
    for matrix in (acting.query_weights, acting.key_weights, values):
        assert core.spectral(np.asarray(matrix)) <= found.attention_norm * (1 + 1e-6)
        assert core.frobenius(np.asarray(matrix)) <= found.attention_size * (1 + 1e-6)
    inner = np.asarray(acting.feed_forward.inner)
    assert core.spectral(inner) <= found.feed_forward_norm * (1 + 1e-6)
    assert core.frobenius(inner) <= found.feed_forward_size * (1 + 1e-6)
    assert core.frobenius(values) > 1.5 * 1.05  # more than a matrix with one column could have


def test_bound_falls_with_samples_and_not_with_length():
    limits = NormLimits(1.0, 1.0)
    network = AttentionNetwork.init(jax.random.key(0), 3, 3, limits=limits)
    values = {}
    for count, length in ((50, 3), (200, 3), (50, 30)):
        data = WORLD.encode(WORLD.sample(0, count, length))
        values[count, length] = risk_bound(network, data).value
    assert values[200, 3] < values[50, 3]
    assert values[50, 30] == pytest.approx(values[50, 3], rel=1e-12)


def test_wrong_arguments_are_refused():
    network = AttentionNetwork.init(jax.random.key(0), 3, 3)
    with pytest.raises(core.InputError, match="a world of"):
        decompose(network, "finite-atoms", 10, seed=0, context_length=3)
    with pytest.raises(core.InputError, match="n_samples"):
        decompose(network, WORLD, 0, seed=0, context_length=3)


def test_squared_loss_is_per_sequence():
    assert squared_loss(jnp.zeros((2, 2)), jnp.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [25, 0]
