"""What every world promises, member by member: exchangeable, coherent, exact."""

import dataclasses
import inspect
import itertools

import numpy as np
import pytest
from scipy.special import gammaln

from finetti.core.errors import InputError
from finetti.kernels import RBF
from finetti.latent import (
    BetaBernoulli,
    FiniteAtoms,
    GaussianEmission,
    GaussianProcessWorld,
    InstrumentalWorld,
    LetterEmission,
    LinearGaussian,
    Pairs,
    SphereWorld,
    append_token,
    random_rotations,
    reorder,
    worlds,
)
from own_world import NormalMean
from standard_errors import assert_mean

LETTERS = [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2]]
CENTERS = [[-1.0, 0.5], [1.0, 0.0]]
# A world of your own: add it here, and it has to keep every promise below.
MEMBERS = {
    "beta-bernoulli": BetaBernoulli(0.7, 2.0),
    "finite-atoms": FiniteAtoms([0.3, 0.7], LETTERS),
    "finite-atoms-vectors": FiniteAtoms([0.3, 0.7], GaussianEmission(CENTERS, 0.8)),
    "finite-atoms-answers": FiniteAtoms(
        [0.3, 0.7], GaussianEmission(CENTERS, 0.8), answers=LetterEmission(LETTERS)
    ),
    "linear-gaussian": LinearGaussian(2, 2, noise_variance=0.5, prior_variance=1.5),
    "gaussian-process": GaussianProcessWorld(RBF(0.8), 2, 2, noise_variance=0.4),
    "sphere": SphereWorld(random_rotations(0, 3, 3), [0.2, 0.3, 0.5], concentration=1.5),
    "sphere-mixed": SphereWorld(random_rotations(1, 2, 2), concentration=2.0, harmonics="mixed"),
    "instrumental": InstrumentalWorld(((1.0, 0.5), (0.0, 0.7)), confounding_variance=2.0),
    "own": NormalMean(noise=0.8),
}
members = pytest.mark.parametrize("world", MEMBERS.values(), ids=MEMBERS.keys())
NEXT_TOKEN = [name for name, world in MEMBERS.items() if world.answers_next_token]
MANY = 20_000  # some hundred means are looked at, and the seeds are fixed


def rows(tokens, index):
    return Pairs(*(part[index] for part in tokens)) if isinstance(tokens, Pairs) else tokens[index]


def query_of(draw, index):
    return None if draw.query is None else draw.query[index]


def test_every_name_of_the_registry_is_here():
    assert set(worlds) <= set(MEMBERS)
    for name, make in worlds.items():
        assert make().name == name
        assert type(make()) is type(MEMBERS[name])


@members
def test_likelihood_is_invariant_to_token_order(world):
    tokens = world.sample(0, 5, 4).tokens
    reference = world.log_prob(tokens)
    assert reference.shape == (5,)
    for order in itertools.permutations(range(4)):
        np.testing.assert_allclose(world.log_prob(reorder(tokens, order)), reference, atol=1e-12)


@members
def test_prediction_is_invariant_to_token_order(world):
    draw = world.sample(1, 5, 6)
    law = world.predict(draw.tokens, draw.query)
    again = world.predict(reorder(draw.tokens, [3, 1, 5, 0, 2, 4]), draw.query)
    np.testing.assert_allclose(again.mean, law.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(again.log_prob(draw.answer), law.log_prob(draw.answer), atol=1e-12)


@pytest.mark.parametrize("name", NEXT_TOKEN)
@pytest.mark.parametrize("length", [0, 1, 7])
def test_chain_rule(name, length):
    world = MEMBERS[name]
    draw = world.sample(2, 6, length)
    longer = append_token(draw.tokens, draw.answer, draw.query)
    gain = world.log_prob(longer) - world.log_prob(draw.tokens)
    law = world.predict(draw.tokens, draw.query)
    np.testing.assert_allclose(law.log_prob(draw.answer), gain, rtol=0, atol=1e-10)


@members
def test_an_empty_context_leaves_the_prior(world):
    draw = world.sample(3, 4, 0)
    np.testing.assert_allclose(world.log_prob(draw.tokens), 0, atol=1e-14)
    latents = world.sample(4, MANY, 0).latent
    mean = world.posterior(draw.tokens).mean[0]
    assert_mean(encoded_latent(latents, mean), mean)


def encoded_latent(latents, mean):
    """Atoms as unit vectors, as the mean of their posterior is."""
    if np.issubdtype(latents.dtype, np.integer):
        return np.eye(mean.shape[-1])[latents]
    return latents


@members
def test_many_sequences_are_as_one_by_one(world):
    draw = world.sample(5, 4, 3)
    law, logs = world.predict(draw.tokens, draw.query), world.log_prob(draw.tokens)
    posterior = world.posterior(draw.tokens)
    for i in range(4):
        one = rows(draw.tokens, slice(i, i + 1))
        alone = world.predict(one, query_of(draw, slice(i, i + 1)))
        np.testing.assert_allclose(alone.mean[0], law.mean[i], rtol=0, atol=1e-12)
        np.testing.assert_allclose(alone.variance[0], law.variance[i], rtol=0, atol=1e-12)
        np.testing.assert_allclose(world.log_prob(one), logs[i : i + 1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(world.posterior(one).mean[0], posterior.mean[i], atol=1e-12)


@members
def test_averages_over_the_world_are_those_of_the_posterior(world):
    """E[(z − E[z|X]) g(X)] = 0, and E[(y − E[y|X]) g(X)] = 0, for any g: here 1 and f*."""
    draw = world.sample(6, MANY, 3)
    law, posterior = world.predict(draw.tokens, draw.query), world.posterior(draw.tokens)
    target = world.encode(draw).target
    miss, weight = target - law.mean, law.mean[:, :1]
    assert_mean(miss, 0.0)
    assert_mean(miss * weight, 0.0)
    assert_mean(miss**2 - law.variance, 0.0)
    latent = encoded_latent(draw.latent, posterior.mean)
    for factor in (1.0, weight.reshape(-1, *[1] * (latent.ndim - 1))):
        assert_mean((latent - posterior.mean) * factor, 0.0)
    assert_mean((latent - posterior.mean) ** 2 - posterior.variance, 0.0)


# The latent of a process is its values at the keys, which are others in a longer context.
@pytest.mark.parametrize("name", sorted({*NEXT_TOKEN} - {"gaussian-process"}))
def test_bayes_rule(name):
    """log p(z|X, x) − log p(z|X) + log p(x|X) = log p(x|z), whatever X: also none."""
    world = MEMBERS[name]
    draw = world.sample(15, 5, 4)

    def log_likelihood(context):
        longer = append_token(context, draw.answer, draw.query)
        moved = world.posterior(longer).log_prob(draw.latent)
        law = world.predict(context, draw.query)
        return moved - world.posterior(context).log_prob(draw.latent) + law.log_prob(draw.answer)

    empty = reorder(draw.tokens, [])
    expected = log_likelihood(empty)
    np.testing.assert_allclose(log_likelihood(draw.tokens), expected, rtol=0, atol=1e-9)


@members
def test_a_posterior_draws_what_it_says(world):
    posterior = world.posterior(world.sample(16, 2, 1).tokens)
    latents = posterior.sample(17, MANY)
    assert latents.shape == (MANY, *posterior.sample(18).shape)
    points = encoded_latent(latents, posterior.mean)
    assert_mean(points, posterior.mean)
    assert_mean((points - posterior.mean) ** 2, posterior.variance)


@members
def test_a_law_draws_what_it_says(world):
    draw = world.sample(7, 2, 3)
    law = world.predict(draw.tokens, draw.query)
    answers = law.sample(8, MANY)
    assert answers.shape == (MANY, *np.shape(draw.answer))
    assert law.sample(9).shape == np.shape(draw.answer)
    points = answers if law.mean.shape == answers.shape[1:] else np.eye(law.mean.shape[1])[answers]
    assert_mean(points, law.mean)
    assert_mean((points - law.mean) ** 2, law.variance)


@members
def test_a_law_has_mass_one(world):
    """Σ_y p(y) = 1, or E_q[p(y)/q(y)] = 1 for draws y of a law q with heavier tails."""
    draw = world.sample(10, 2, 2)
    law = world.predict(draw.tokens, draw.query)
    if np.issubdtype(draw.answer.dtype, np.integer):
        letters = np.arange(law.mean.shape[1])[:, None].repeat(2, axis=1)
        np.testing.assert_allclose(np.exp(law.log_prob(letters)).sum(axis=0), 1, atol=1e-12)
        return
    rng, shape = np.random.default_rng(11), (MANY, *law.mean.shape)
    if np.allclose(np.linalg.norm(draw.answer, axis=1), 1):  # on a sphere: uniform, 1/area
        points, d = rng.normal(size=shape), shape[-1]
        points /= np.linalg.norm(points, axis=-1, keepdims=True)
        logs = gammaln(d / 2) - np.log(2) - d / 2 * np.log(np.pi)
    else:  # Student's law with 3 degrees of freedom in every direction
        scale, steps = np.sqrt(law.variance), rng.standard_t(3, size=shape)
        each = np.log(2 / (np.pi * np.sqrt(3))) - 2 * np.log1p(steps**2 / 3) - np.log(scale)
        points, logs = law.mean + scale * steps, each.sum(axis=-1)
    ratio = np.exp(law.log_prob(points) - logs)
    assert ratio.std() <= 0.03 * np.sqrt(MANY)  # otherwise nothing would be seen
    assert_mean(ratio, 1.0)


@members
def test_encoded_sequences_have_one_token_per_pair_and_a_mask(world):
    draw = world.sample(12, 5, 3)
    encoded = world.encode(draw)
    n, length, width = encoded.tokens.shape
    assert (n, length) == (5, 3)
    assert encoded.mask_token.shape == (5, width)
    assert encoded.target.shape == world.predict(draw.tokens, draw.query).mean.shape
    assert all(part.dtype == np.float64 for part in encoded)
    assert world.encode(world.sample(12, 5, 0)).tokens.shape == (5, 0, width)


@members
def test_impossible_arguments_are_refused(world):
    draw = world.sample(13, 2, 3)
    with pytest.raises(InputError, match="rng"):
        world.sample(None, 2, 3)
    with pytest.raises(InputError, match="context_length"):
        world.sample(0, 2, -1)
    with pytest.raises(InputError, match="n_sequences"):
        world.sample(0, 1.5, 3)
    with pytest.raises(InputError, match="query"):
        world.predict(draw.tokens, None if draw.query is not None else np.zeros((2, 1)))
    with pytest.raises(InputError, match=r"shape|Pairs"):
        world.log_prob(np.zeros(3))
    broken = (
        Pairs(draw.tokens.keys, draw.tokens.values * np.nan) if draw.query is not None else None
    )
    if broken is not None:
        with pytest.raises(InputError, match="finite"):
            world.posterior(broken)


@members
def test_the_same_seed_draws_the_same(world):
    first, second = world.sample(14, 3, 2), world.sample(np.random.default_rng(14), 3, 2)
    assert np.array_equal(first.answer, second.answer)
    assert np.array_equal(world.encode(first).tokens, world.encode(second).tokens)


@members
def test_a_world_shows_itself(world):
    assert "latent" in str(world)
    assert "posterior" in world._repr_html_()


@pytest.mark.parametrize("name", worlds)
def test_every_setting_of_a_named_world_has_a_name(name):
    settings = set(inspect.signature(worlds[name]).parameters)
    made_here = {"rotations"} if name == "sphere" else set()
    fields = {each.name for each in dataclasses.fields(worlds[name]())} - made_here
    assert fields <= settings
