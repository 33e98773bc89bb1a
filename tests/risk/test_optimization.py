"""Proposition 5.6: minima of sums of norms against other routes, and the inequality itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from finetti import core
from finetti.risk import AttentionNetwork, ParameterBox, optimization_bound, polish_network
from finetti.risk.parameters import flatten
from finetti.risk.theorems import stationary_bound
from finetti.risk.theorems.norm_sums import minimize_norms

RNG = np.random.default_rng(0)


def test_least_absolute_deviations_is_a_linear_program():
    for _ in range(5):
        residual, matrix = RNG.normal(size=(12, 1)), RNG.normal(size=(12, 1, 3))
        found = minimize_norms(residual, matrix, ParameterBox(-0.4, 0.3), np.zeros(3))
        rows = matrix[:, 0]
        program = optimize.linprog(
            np.concatenate([np.zeros(3), np.full(12, 1 / 12)]),
            np.block([[rows, -np.eye(12)], [-rows, -np.eye(12)]]),
            np.concatenate([-residual[:, 0], residual[:, 0]]),
            bounds=[(-0.4, 0.3)] * 3 + [(None, None)] * 12,
        )
        assert found.dual <= program.fun + 1e-12 <= found.value + 2e-12
        assert found.value - found.dual <= 2e-4 * found.value


@pytest.mark.parametrize("seed", [1, 7, 9, 12])
def test_the_floor_of_numbers_is_tight_where_directions_hardly_matter(seed):
    """As J of small networks: smoothed minima are not met, and left gaps of up to 32 %."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n, 8)))[0] for n in (12, 8))
    sizes = np.array([4.64, 0.75, 0.1, 0.0228, 0.004, 0.0025, 0.0005, 0.0])
    matrix, residual = (left * sizes) @ right.T, 0.2 * rng.normal(size=(12, 1))
    found = minimize_norms(
        residual, matrix[:, None], ParameterBox(-2.0, 2.0), rng.uniform(-2, 2, size=8)
    )
    assert found.value - found.dual <= 1e-4 * found.value


def test_geometric_median_in_a_box():
    """J_i = −I: the mean distance to points; the box cuts the way to their median."""
    points = RNG.normal(size=(15, 2)) + 3
    matrix = np.broadcast_to(-np.eye(2), (15, 2, 2))
    wide = minimize_norms(points, matrix, ParameterBox(-10.0, 10.0), np.zeros(2))
    unit = (points - wide.move) / np.linalg.norm(points - wide.move, axis=1, keepdims=True)
    assert np.abs(unit.mean(axis=0)).max() < 1e-3
    tight = minimize_norms(points, matrix, ParameterBox(-1.0, [1.0, 10.0]), np.zeros(2))
    assert tight.move[0] == pytest.approx(1, abs=1e-6)
    edge = np.stack([np.ones(20_001), np.linspace(-1, 10, 20_001)], axis=1)
    brute = np.linalg.norm(points[:, None] - edge, axis=2).mean(axis=0).min()
    assert tight.dual <= brute + 1e-9
    assert tight.value == pytest.approx(brute, rel=1e-6)
    assert tight.value - tight.dual <= 1e-3 * tight.value


def test_floor_holds_at_random_members_of_the_region():
    residual, matrix, at = RNG.normal(size=(8, 2)), RNG.normal(size=(8, 2, 4)), np.full(4, 0.1)
    box = ParameterBox(-0.2, 0.5)
    found = minimize_norms(residual, matrix, box, at)
    moves = [box.project(at + RNG.normal(size=4)) - at for _ in range(200)]
    values = [np.linalg.norm(residual + matrix @ move, axis=1).mean() for move in moves]
    assert found.dual <= found.value <= min(values) + 1e-9
    slope = matrix[0, 0]
    assert box.minimize_linear(slope, at) <= min(slope @ move for move in moves) + 1e-9
    assert minimize_norms(np.zeros((3, 1)), np.zeros((3, 1, 2)), box, at[:2]).value == 0


def around(network, reach):
    """A box about the network's numbers."""
    flat = flatten(network)
    return ParameterBox(flat - reach, flat + reach)


def _data(count=6):
    tokens = RNG.normal(size=(count, 3, 2))
    target = RNG.normal(size=(count, 1))
    return tokens, RNG.normal(size=(count, 2)), target / np.abs(target).max()


def test_inequality_at_a_minimum_and_its_slack_elsewhere():
    data = _data()
    start = AttentionNetwork.init(jax.random.key(1), 2, 1, hidden_dimension=2, head_dimension=1)
    better, _ = polish_network(start, data)
    stationary, slope = polish_network(start, data, iterations=5)
    found = optimization_bound(stationary, data, better, around(stationary, 1.0))
    size = flatten(stationary).size
    # Around θ̂ it is ‖∇‖₁, which lies between ‖∇‖₂ and √p‖∇‖₂.
    assert 0.99 * slope <= found.slack <= 1.01 * size**0.5 * slope
    assert found.excess <= found.bound
    same = optimization_bound(better, data, better, around(better, 1.0))
    assert same.excess == pytest.approx(0, abs=1e-6)
    assert same.value == pytest.approx(0, abs=1e-6)
    assert "from below" in str(found)


class Scale(eqx.Module):
    """f = θ·(mean token)."""

    theta: jax.Array

    def __call__(self, tokens, mask_token):
        return jnp.mean(tokens, axis=0) * self.theta


def test_linear_network_reaches_any_other_one():
    tokens = RNG.normal(size=(5, 3, 2))
    data = tokens, np.zeros((5, 2)), np.zeros((5, 2))
    found = optimization_bound(
        Scale(jnp.ones(2)), data, Scale(jnp.array([0.5, -0.5])), ParameterBox(-2.0, 2.0)
    )
    np.testing.assert_allclose(found.move, [-0.5, -1.5], atol=1e-4)
    assert found.value < 1e-4
    assert found.excess <= found.bound


def test_wrong_arguments_are_refused(monkeypatch):
    tokens = RNG.normal(size=(5, 3, 2))
    data = tokens, np.zeros((5, 2)), np.zeros((5, 2))
    network = Scale(jnp.ones(2))
    with pytest.raises(core.InputError, match="contains the network"):
        optimization_bound(network, data, network, ParameterBox(-0.5, 0.5))
    with pytest.raises(core.InputError, match="comparator"):
        optimization_bound(network, data, np.zeros((5, 1)), ParameterBox(-2.0, 2.0))
    monkeypatch.setattr(stationary_bound, "MAX_ENTRIES", 19)
    with pytest.raises(core.InputError, match="10 answers and 2 weights"):
        optimization_bound(network, data, network, ParameterBox(-2.0, 2.0))
    with pytest.raises(core.InputError, match="nowhere above"):
        ParameterBox(1.0, 0.0)
