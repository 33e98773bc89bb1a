"""Assumption 5.4 and Theorem 5.5: projections against closed forms, sums against all sequences."""

import itertools

import jax
import numpy as np
import pytest

from finetti import core
from finetti.latent import BetaBernoulli, FiniteAtoms
from finetti.risk import (
    AttentionNetwork,
    approximation_error,
    predictions,
    recovery_gap,
)

RNG = np.random.default_rng(0)
WORLD = FiniteAtoms([0.6, 0.4], [[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]])


def test_best_line_is_chebyshevs():
    """The best line to z² on [0, 1] is z − 1/8, with error 1/8 at 0, 1/2 and 1."""
    z = np.linspace(0, 1, 101)
    gap = recovery_gap(z[:, None] ** 2, np.stack([np.ones_like(z), z], axis=1))
    np.testing.assert_allclose(gap.weights[:, 0], [-1 / 8, 1], atol=1e-9)
    assert gap.total == pytest.approx(1 / 8, abs=1e-12)


def test_gap_is_certified_and_never_beaten():
    for _ in range(10):
        target, features = RNG.normal(size=(7, 2)), RNG.normal(size=(7, 3))
        gap = recovery_gap(target, features)
        np.testing.assert_allclose(gap.lower, gap.errors, rtol=1e-9)
        assert gap.total**2 == pytest.approx(np.sum(np.max(np.abs(gap.residual), axis=0) ** 2))
        least_squares = target - features @ np.linalg.lstsq(features, target)[0]
        assert np.all(gap.errors <= np.max(np.abs(least_squares), axis=0) + 1e-12)
        for _ in range(20):
            other = gap.weights + 0.1 * RNG.normal(size=(3, 2))
            assert np.all(np.max(np.abs(target - features @ other), axis=0) >= gap.errors - 1e-12)


def test_nothing_is_lost_inside_the_span():
    features = RNG.normal(size=(5, 3))
    gap = recovery_gap(features @ RNG.normal(size=(3, 2)), features)
    assert gap.total < 1e-9
    assert recovery_gap(np.ones((3, 1)), np.zeros((3, 1))).total == 1


def test_both_sides_of_theorem_5_5():
    network = AttentionNetwork.init(jax.random.key(0), 3, 3)
    found = approximation_error(network, WORLD, 3)
    assert 0 < found.excess <= found.bound
    assert found.bound == pytest.approx(2 * found.gap.total**2 + 2 * found.attention_error**2)
    # again, over all 27 sequences
    letters = np.array(list(itertools.product(range(3), repeat=3)))
    tokens = np.eye(3)[letters]
    out = predictions(network, (tokens, np.zeros((27, 3)), np.zeros((27, 3))))
    excess = np.exp(WORLD.log_prob(letters)) @ np.sum(
        (out - WORLD.predict(letters).mean) ** 2, axis=1
    )
    assert found.excess == pytest.approx(excess, rel=1e-5)
    features = WORLD.emission.table @ np.asarray(network.values(np.eye(3)))
    surrogate = WORLD.posterior(letters).probabilities @ features @ found.gap.weights
    sup = np.linalg.norm(out - surrogate, axis=1).max()
    assert found.attention_error == pytest.approx(sup, rel=1e-5)
    assert "attention's error" in str(found)


def test_poor_values_leave_a_gap():
    """One value for all letters spans the constants only: ε_g is half the range of p(x|z)."""
    network = AttentionNetwork.init(jax.random.key(0), 3, 3)
    found = approximation_error(network, WORLD, 3, letter_values=np.ones((3, 1)))
    half_range = np.ptp(WORLD.emission.table, axis=0) / 2
    np.testing.assert_allclose(found.gap.errors, half_range, atol=1e-12)
    assert found.excess <= found.bound


def test_wrong_arguments_are_refused():
    network = AttentionNetwork.init(jax.random.key(0), 3, 3)
    with pytest.raises(core.InputError, match="FiniteAtoms with letters"):
        approximation_error(network, BetaBernoulli(), 3)
    with pytest.raises(core.InputError, match="one row per letter"):
        approximation_error(network, WORLD, 3, letter_values=np.ones((2, 1)))
    with pytest.raises(core.InputError, match="letter_values"):
        approximation_error(lambda tokens, mask: tokens[:, 0], WORLD, 3)
    with pytest.raises(core.InputError, match="one row for each"):
        recovery_gap(np.ones((3, 1)), np.ones((2, 1)))
