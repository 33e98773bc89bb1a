"""Worlds of vectors against brute force: joint Gaussians, quadrature, long contexts."""

import numpy as np
import pytest

from finetti.core.errors import InputError, UnsupportedError
from finetti.core.numerics.sphere_integrals import sphere_rule
from finetti.kernels import RBF, Linear
from finetti.latent import (
    Categorical,
    Gaussian,
    GaussianProcessWorld,
    InstrumentalWorld,
    LinearGaussian,
    Pairs,
    SphereWorld,
    append_token,
    random_rotations,
)


def normal_log_prob(values, covariance):
    """log N(values; 0, covariance), by the textbook."""
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return -0.5 * (values @ np.linalg.solve(covariance, values) + log_det)


def test_linear_gaussian_is_conditioning_of_one_joint_gaussian():
    """vec z, all r's and the answer, stacked; nothing but their covariance is used."""
    world = LinearGaussian(3, 2, noise_variance=0.7, prior_variance=1.9)
    draw = world.sample(0, 3, 5)
    law, after = world.predict(draw.tokens, draw.query), world.posterior(draw.tokens)
    longer = append_token(draw.tokens, draw.answer, draw.query)
    for i in range(3):
        design = np.kron(longer.keys[i], np.eye(2))  # r's stacked, of z column by column
        prior = 1.9 * np.eye(6)
        joint = design @ prior @ design.T + 0.7 * np.eye(12)
        seen, values = joint[:10, :10], draw.tokens.values[i].ravel()
        gain = np.linalg.solve(seen, joint[:10, 10:])
        np.testing.assert_allclose(law.mean[i], gain.T @ values, atol=1e-10)
        covariance = joint[10:, 10:] - joint[10:, :10] @ gain
        np.testing.assert_allclose(np.diag(law.variance[i]), covariance, atol=1e-10)
        across = np.linalg.solve(seen, (design @ prior)[:10])
        mean = (across.T @ values).reshape(3, 2).T
        np.testing.assert_allclose(after.mean[i], mean, atol=1e-10)
        spread = prior - across.T @ (design @ prior)[:10]
        order = np.arange(6).reshape(3, 2).T.ravel()  # to z row by row
        rows = np.kron(np.eye(2), after.row_covariance[i])
        np.testing.assert_allclose(rows, spread[np.ix_(order, order)], atol=1e-10)
        expected = normal_log_prob(values, seen)
        assert world.log_prob(draw.tokens)[i] == pytest.approx(expected, abs=1e-10)
        density = normal_log_prob((draw.latent[i] - mean).ravel(), spread[np.ix_(order, order)])
        assert after.log_prob(draw.latent)[i] == pytest.approx(density, abs=1e-10)


@pytest.mark.parametrize("noise", [1e-8, 1e6])
@pytest.mark.parametrize("length", [1, 2, 20])
def test_little_and_much_noise_lose_no_digits(noise, length):
    """The chain rule where σ²/τ² is 1e-8 and 1e6: fewer tokens than directions, and more."""
    world = LinearGaussian(3, 2, noise_variance=noise)
    draw = world.sample(8, 20, length)
    longer = append_token(draw.tokens, draw.answer, draw.query)
    before = world.log_prob(draw.tokens)
    law = world.predict(draw.tokens, draw.query).log_prob(draw.answer)
    np.testing.assert_allclose((world.log_prob(longer) - before - law) / before, 0, atol=1e-11)


def test_a_gaussian_without_spread_has_no_density():
    law = Gaussian(np.zeros((1, 2)), variance=np.array([[1.0, 0.0]]))
    assert (law.sample(0)[:, 1] == 0).all()
    with pytest.raises(UnsupportedError, match=r"no density: a variance is 0.*Use `sample`"):
        law.log_prob(np.zeros((1, 2)))


def test_keys_on_top_of_each_other_need_noise():
    world = GaussianProcessWorld(RBF(0.8), 2, 1, noise_variance=1e-18)
    with pytest.raises(InputError, match=r"singular in float64.*more noise"):
        world.log_prob(Pairs(np.ones((1, 5, 2)), np.ones((1, 5, 1))))


def test_a_gaussian_process_with_the_linear_kernel_is_the_linear_world():
    line = LinearGaussian(2, 2, noise_variance=0.4, prior_variance=1.0)
    process = GaussianProcessWorld(Linear(), 2, 2, noise_variance=0.4)
    draw = line.sample(2, 4, 5)
    first, second = (world.predict(draw.tokens, draw.query) for world in (line, process))
    np.testing.assert_allclose(first.mean, second.mean, atol=1e-10)
    np.testing.assert_allclose(first.variance, second.variance, atol=1e-10)
    np.testing.assert_allclose(line.log_prob(draw.tokens), process.log_prob(draw.tokens), atol=1e-9)
    # A line through 5 keys has no density there, but it can be drawn.
    after = process.posterior(draw.tokens)
    assert after.sample(0, 2).shape == (2, 4, 2, 5)
    with pytest.raises(UnsupportedError, match="no density"):
        after.at(np.zeros((4, 2, 2))).log_prob(np.zeros((4, 2, 2)))


def test_gaussian_process_is_conditioning_of_one_joint_gaussian():
    world = GaussianProcessWorld(RBF(0.8), 2, 1, noise_variance=0.4)
    draw = world.sample(3, 2, 5)
    places = np.concatenate([draw.query[:, None], draw.query[:, None] + 0.5], axis=1)
    after = world.posterior(draw.tokens).at(places)
    for i in range(2):
        points = np.concatenate([draw.tokens.keys[i], places[i]])
        squared = ((points[:, None] - points) ** 2).sum(axis=2)
        gram = np.exp(-squared / (2 * 0.8**2))
        noisy, values = gram[:5, :5] + 0.4 * np.eye(5), draw.tokens.values[i, :, 0]
        gain = np.linalg.solve(noisy, gram[:5, 5:])
        np.testing.assert_allclose(after.mean[i, 0], gain.T @ values, atol=1e-10)
        covariance = gram[5:, 5:] - gram[5:, :5] @ gain
        np.testing.assert_allclose(after.row_covariance[i], covariance, atol=1e-10)
        expected = normal_log_prob(values, noisy)
        assert world.log_prob(draw.tokens)[i] == pytest.approx(expected, abs=1e-10)
    at_keys = world.posterior(draw.tokens)
    assert np.isfinite(at_keys.log_prob(draw.latent)).all()


@pytest.mark.parametrize(("harmonics", "dimension"), [("linear", 3), ("mixed", 2)])
def test_the_sphere_by_quadrature(harmonics, dimension):
    """Mass and mean of the values, and the limit of attention, as integrals over spheres."""
    turns = random_rotations(0, 2, dimension)
    world = SphereWorld(turns, concentration=2.0, harmonics=harmonics)
    draw = world.sample(4, 3, 2)
    known = Categorical(np.eye(2)[draw.latent])
    nodes, weights = sphere_rule(world.value_dimension, 24)
    density = np.exp(world.integrate(known, draw.query).log_prob(nodes[:, None].repeat(3, axis=1)))
    np.testing.assert_allclose(weights @ density, 1, atol=1e-10)
    mean = np.einsum("p,pn,pd->nd", weights, density, nodes)
    np.testing.assert_allclose(world.conditional_mean(draw.latent, draw.query), mean, atol=1e-10)

    keys, weights = sphere_rule(dimension, 40)
    for scale in (1.0, 3.0):
        limit = world.smoother_limit(draw.latent, draw.query, scale)
        for i, atom in enumerate(draw.latent):
            kernel = weights * np.exp(scale * keys @ draw.query[i])
            values = world.conditional_mean(np.full(len(keys), atom), keys)
            np.testing.assert_allclose(limit[i], kernel @ values / kernel.sum(), atol=1e-10)


def test_instruments_find_the_effect_and_least_squares_does_not():
    """Long contexts: the posterior closes on β, the regression of y on x on its biased limit."""
    world = InstrumentalWorld(((1.0, 0.5), (0.0, 0.7)), confounding_variance=2.0)
    draw = world.sample(6, 20, 4000)
    inputs, outcome = draw.tokens.values[:, :, :2], draw.tokens.values[:, :, 2:]
    across = np.swapaxes(inputs, 1, 2)
    naive = np.linalg.solve(across @ inputs, across @ outcome)[:, :, 0]
    effect, limit = draw.latent[:, 0, :2], world.least_squares_limit(draw.latent)
    after = world.posterior(draw.tokens)
    errors = (after.mean - draw.latent)[:, 0] / np.sqrt(after.variance[:, 0])
    assert np.abs(errors).max() <= 5
    assert np.abs(naive - limit).max() <= 0.15  # of order 1/√4000, times noise and κ of a few units
    assert np.abs(naive - effect).max() >= 0.5
    there = world.structural(draw.tokens, np.tile([1.0, 0.0], (20, 1)))
    np.testing.assert_allclose(there.mean[:, 0], after.mean[:, 0, 0], atol=1e-12)
    np.testing.assert_allclose(there.variance[:, 0], after.variance[:, 0, 0], atol=1e-12)


def test_an_outcome_is_expected_as_the_structural_function_of_the_expected_input():
    world = InstrumentalWorld()
    draw = world.sample(7, 5, 10)
    law = world.predict(draw.tokens, draw.query)
    expected = draw.query @ world.first_stage.T
    np.testing.assert_allclose(law.mean[:, :1], expected, atol=1e-12)
    structural = world.structural(draw.tokens, expected).mean
    np.testing.assert_allclose(law.mean[:, 1:], structural, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: LinearGaussian(noise_variance=-1.0), "noise_variance"),
        (lambda: LinearGaussian(key_dimension=0), "key_dimension"),
        (lambda: GaussianProcessWorld("rbf"), "Kernel"),
        (lambda: SphereWorld(np.ones((1, 2, 2))), "orthogonal"),
        (lambda: SphereWorld(np.eye(3)), "rotations"),
        (lambda: SphereWorld(np.eye(2)[None], [0.5, 0.5]), "prior"),
        (lambda: SphereWorld(np.eye(2)[None], concentration=1e4), "concentration"),
        (lambda: SphereWorld(np.eye(600)[None]), "area"),
        (lambda: InstrumentalWorld(((0.0, 0.0),)), "Without relevance"),
        (lambda: InstrumentalWorld(((1.0,), (2.0,))), "1 instruments for 2 inputs"),
        (lambda: InstrumentalWorld(((1.0, 2.0), (2.0, 4.0))), "a lower rank"),
        (lambda: InstrumentalWorld(input_variance=-1.0), "input_variance"),
        (lambda: Gaussian(np.zeros((1, 2)), variance=-1.0), "variance"),
        (lambda: Categorical(np.array([0.5, 0.5])), "shape"),
        (lambda: Categorical(np.array([[0.5, 0.5]])).log_prob([-1]), "letters from 0 to 1"),
        (lambda: Gaussian(np.zeros((3, 1)), variance=1.0).log_prob(np.zeros(3)), "shape"),
        (lambda: LinearGaussian().log_prob(Pairs([[[1.0]], [1.0]], [[[1.0]]])), "numbers"),
        (lambda: LinearGaussian().log_prob(np.zeros((2, 3, 4))), "Pairs"),
        (lambda: Categorical(np.array([[0.5, np.nan]])), "nonnegative"),
    ],
)
def test_impossible_parameters_are_refused(make, what):
    with pytest.raises(InputError, match=what):
        make()


def test_tokens_that_are_not_on_the_sphere_are_refused():
    world = SphereWorld(np.eye(2)[None])
    unit, off = np.array([[[1.0, 0.0]]]), np.array([[[1.0, 0.1]]])
    for pairs, what in ((Pairs(off, unit), "keys"), (Pairs(unit, off), "values")):
        with pytest.raises(InputError, match=f"`{what}` .* unit vectors"):
            world.log_prob(pairs)
    with pytest.raises(InputError, match=r"`query` .* unit vectors"):
        world.predict(Pairs(unit, unit), off[0])
    assert world.predict(Pairs(unit, unit), unit[0]).log_prob(off[0]) == -np.inf


def test_a_pair_is_appended_at_its_query():
    draw = LinearGaussian(key_dimension=2, value_dimension=1).sample(0, 3, 4)
    assert append_token(draw.tokens, draw.answer, draw.query).keys.shape == (3, 5, 2)
    with pytest.raises(
        InputError, match=r"`query` argument of append_token must be of shape \(3, 2"
    ):
        append_token(draw.tokens, draw.answer)
