"""Worlds of letters against sums over everything that can happen."""

import itertools

import numpy as np
import pytest
from scipy import integrate
from scipy.special import gammaln, xlogy

from finetti.core.errors import InputError
from finetti.latent import (
    BetaBernoulli,
    Emission,
    FiniteAtoms,
    Gaussian,
    GaussianEmission,
    append_token,
)
from standard_errors import assert_mean

SEQUENCES = np.array(list(itertools.product((0, 1), repeat=4)))


@pytest.mark.parametrize("sampler", ["sample_urn", "sample"])
def test_both_ways_to_draw_have_that_law(sampler):
    world, count = BetaBernoulli(0.6, 1.7), 40_000
    drawn = getattr(world, sampler)(0, count, 4)
    tokens = drawn if sampler == "sample_urn" else drawn.tokens
    found = np.bincount(tokens @ [8, 4, 2, 1], minlength=16) / count
    law = np.exp(world.log_prob(SEQUENCES))
    assert law.sum() == pytest.approx(1, abs=1e-14)
    assert np.all(np.abs(found - law) <= 5 * np.sqrt(law * (1 - law) / count))


def test_a_density_of_the_bias_has_mass_one():
    after = BetaBernoulli(1.0, 2.0).posterior(np.array([[1, 1, 0]]))
    mass, _ = integrate.quad(lambda z: np.exp(after.log_prob([z])[0]), 0, 1)
    assert mass == pytest.approx(1, abs=1e-10)
    assert after.log_prob(np.array([-0.1])) == -np.inf
    assert BetaBernoulli().posterior(np.array([[1]])).log_prob([1.0]) == pytest.approx(np.log(2))


ATOMS = FiniteAtoms(
    [0.5, 0.2, 0.3],
    [[0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]],
    answers=[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]],
)


def test_atoms_are_the_joint_table_of_everything():
    for tokens in itertools.product(range(3), repeat=3):
        joint = ATOMS.prior * np.prod(ATOMS.emission.table[:, list(tokens)], axis=1)
        answers = joint @ ATOMS.answers.table
        one = np.array([tokens])
        np.testing.assert_allclose(np.exp(ATOMS.log_prob(one)), joint.sum(), rtol=1e-13)
        found = ATOMS.posterior(one).probabilities[0]
        np.testing.assert_allclose(found, joint / joint.sum(), rtol=1e-12)
        law = ATOMS.predict(one).probabilities[0]
        np.testing.assert_allclose(law, answers / joint.sum(), rtol=1e-12)


def test_letters_that_an_atom_never_emits():
    world = FiniteAtoms([0.5, 0.5], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert world.posterior(np.array([[0, 0]])).probabilities.tolist() == [[1.0, 0.0]]
    assert world.log_prob(np.array([[0, 1], [0, 0]])).tolist() == [-np.inf, np.log(0.5)]
    assert world.predict(np.array([[1]])).log_prob([0]) == -np.inf
    assert 2 not in world.sample(0, 1000, 3).tokens
    with pytest.raises(InputError, match="1 of 2 sequences: they have probability 0"):
        world.posterior(np.array([[0, 1], [0, 0]]))


def test_moments_of_a_letter_are_those_of_its_code():
    emission = ATOMS.emission
    for atom, law in enumerate(emission.table):
        codes = emission.encode(np.arange(3))
        np.testing.assert_allclose(emission.mean[atom], law @ codes, rtol=1e-14)
        squares = law @ (codes - law @ codes) ** 2
        np.testing.assert_allclose(emission.variance[atom], squares, rtol=1e-14)


def test_vectors_around_centers_have_the_gaussian_density():
    emission = GaussianEmission([[-1.0, 0.5], [1.0, 0.0]], noise_variance=0.8)
    points = np.random.default_rng(1).normal(size=(6, 2))
    for atom, center in enumerate(emission.mean):
        law = Gaussian(np.tile(center, (6, 1)), variance=0.8)
        found = emission.log_prob(points)[:, atom]
        np.testing.assert_allclose(found, law.log_prob(points), rtol=1e-12)


class PoissonEmission(Emission):
    """A user's own: counts."""

    def __init__(self, rates):
        self.mean = self.variance = np.asarray(rates, float)[:, None]

    def check(self, tokens, owner):
        return np.asarray(tokens)

    def log_prob(self, tokens):
        counts = np.asarray(tokens)[..., None]
        return xlogy(counts, self.mean[:, 0]) - self.mean[:, 0] - gammaln(counts + 1)

    def sample(self, rng, atoms):
        return rng.poisson(self.mean[atoms, 0])

    def encode(self, tokens):
        return np.asarray(tokens, float)[..., None]

    def describe(self):
        return "counts"


def test_an_emission_of_ones_own_makes_a_world():
    world = FiniteAtoms([0.4, 0.6], PoissonEmission([1.0, 4.0]))
    draw = world.sample(0, 20_000, 3)
    law = world.predict(draw.tokens)
    longer = append_token(draw.tokens, draw.answer)
    gain = world.log_prob(longer) - world.log_prob(draw.tokens)
    np.testing.assert_allclose(law.log_prob(draw.answer), gain, atol=1e-10)
    scaled = (world.encode(draw).target - law.mean) / np.sqrt(law.variance)
    assert_mean(scaled, 0.0)
    assert_mean(scaled**2, 1.0)
    assert law.sample(1, 3).shape == (3, 20_000)
    assert "counts" in str(world)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: BetaBernoulli(0.0, 1.0), "alpha"),
        (lambda: BetaBernoulli(1.0, float("nan")), "beta"),
        (lambda: FiniteAtoms([0.5, 0.6], np.eye(2)), "prior"),
        (lambda: FiniteAtoms([[1.0]], np.eye(1)), "prior"),
        (lambda: FiniteAtoms([0.5, 0.5], [[0.5, 0.4], [0.5, 0.5]]), "emission"),
        (lambda: FiniteAtoms([0.5, 0.5], np.eye(3)), "as many atoms"),
        (lambda: FiniteAtoms([0.5, 0.5], np.eye(2), np.eye(3)), "answers"),
        (lambda: FiniteAtoms([1.5, -0.5], np.eye(2)), "nonnegative"),
        (lambda: GaussianEmission([[0.0]], noise_variance=-1.0), "noise_variance"),
        (lambda: BetaBernoulli().log_prob(np.array([[0.5]])), "whole numbers"),
        (lambda: BetaBernoulli().log_prob(np.array([[2]])), "letters from 0 to 1"),
        (lambda: FiniteAtoms([1.0], [[1.0]]).log_prob(np.array([[-1]])), "letters"),
    ],
)
def test_impossible_parameters_are_refused(make, what):
    with pytest.raises(InputError, match=what):
        make()
