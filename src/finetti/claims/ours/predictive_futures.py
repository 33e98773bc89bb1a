"""Martingale posteriors against exact ones, each as one number."""

from typing import Any

import numpy as np
import scipy

from finetti import attention, coherence, kernels, latent
from finetti.coherence.predictors.world_predictor import WorldLetters, WorldPairs
from finetti.core.numbers import largest_of

PATHS = 99  # and the truth: 100 ranks


class NoiseAlone(WorldPairs):
    """The exact mean, and the noise as variance: as if z were known."""

    def answer(self, query: Any, keys: Any, values: Any, variance: bool) -> Any:
        """Return the exact mean with the noise variance only, ignoring what is not known of z."""
        mean, _ = super().answer(query, keys, values, variance)
        return mean, np.full(mean.shape, self.world.noise_variance)


def urn(rng: np.random.Generator, paths: int, frozen: bool) -> float:
    """p-value of χ² of the ones among 12 more draws, against the Beta-binomial law."""
    start, horizon = np.array([1, 1, 1, 0]), 12
    world = latent.BetaBernoulli(1.0, 1.0)
    target: Any = world
    if frozen:
        p = world.predict(start[None]).probabilities[0]
        target = coherence.as_predictor(lambda tokens: p)
    found = coherence.martingale_posterior(
        target,
        start,
        lambda tokens: tokens[:, len(start) :].sum(axis=1),
        horizon=horizon,
        n_paths=paths,
        seed=rng,
    )
    counts = np.bincount(found.draws.astype(int), minlength=horizon + 1)
    after = world.posterior(start[None])
    law: Any = scipy.stats.betabinom(horizon, float(after.alpha[0]), float(after.beta[0]))
    expected = law.pmf(np.arange(horizon + 1)) * paths
    few = expected < 10  # together, as the approximation wants it
    seen = [*counts[~few], counts[few].sum()] if few.any() else counts
    wanted = [*expected[~few], expected[few].sum()] if few.any() else expected
    return float(scipy.stats.chisquare(seen, wanted).pvalue)


def linear(rng: np.random.Generator, paths: int, plug_in: bool) -> float:
    """Largest |z| of the moments of E[z | completed], in the linear-Gaussian world."""
    world = latent.LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.5)
    start = world.sample(rng, 1, 4).tokens
    places = rng.normal(size=(10, 2))
    found = coherence.martingale_posterior(
        NoiseAlone(world) if plug_in else world,
        (start.keys[0], start.values[0]),
        lambda pairs: world.posterior(pairs).mean[:, 0],
        places=places,
        n_paths=paths,
        seed=rng,
    )
    before = world.posterior(start)
    whole = latent.Pairs(np.concatenate([start.keys, places[None]], axis=1), np.zeros((1, 14, 1)))
    told = before.row_covariance[0] - world.posterior(whole).row_covariance[0]
    return largest_z(found.draws, before.mean[0, 0], told)


def process(rng: np.random.Generator, paths: int) -> float:
    """Largest |z| of the moments of CME attention at 3 keys that are seen three times more."""
    world = latent.GaussianProcessWorld(key_dimension=1, noise_variance=0.2)
    module: Any = coherence.as_predictor(attention.ConditionalMean(kernels.RBF(), ridge=0.2))
    places = np.array([[-1.0], [0.3], [1.5]])
    start = world.sample(rng, 1, 5).tokens

    def answers(pairs: latent.Pairs) -> np.ndarray:
        every = np.broadcast_to(places, (len(pairs.keys), 3, 1))
        return module.mean(every, *pairs)[:, :, 0]

    found = coherence.martingale_posterior(
        module,
        (start.keys[0], start.values[0]),
        answers,
        places=np.tile(places, (3, 1)),
        n_paths=paths,
        seed=rng,
    )
    before = world.posterior(start).at(places[None])
    keys = np.concatenate([start.keys, np.tile(places, (3, 1))[None]], axis=1)
    whole = latent.Pairs(keys, np.zeros((1, keys.shape[1], 1)))
    after = world.posterior(whole).at(places[None])
    told = before.row_covariance[0] - after.row_covariance[0]
    return largest_z(found.draws, before.mean[0, 0], told)


def linear_coverage(rng: np.random.Generator, plug_in: bool) -> float:
    """|z| of how many true completed sequences of the linear-Gaussian world are covered."""
    world = latent.LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.5)
    draw = world.sample(rng, 300, 4)
    places = rng.normal(size=(4, 2))
    truth = np.einsum("hc,nrc->nhr", places, draw.latent)
    truth = truth + np.sqrt(0.5) * rng.normal(size=truth.shape)

    def functional(pairs: latent.Pairs) -> np.ndarray:
        return world.posterior(pairs).mean[:, 0, 0]

    target = NoiseAlone(world) if plug_in else world
    return _pairs_coverage(target, draw.tokens, places, truth, functional, rng)


def process_coverage(rng: np.random.Generator) -> float:
    """The same of CME attention at 3 keys, in the world of its kernel and noise."""
    world = latent.GaussianProcessWorld(key_dimension=1, noise_variance=0.2)
    module: Any = coherence.as_predictor(attention.ConditionalMean(kernels.RBF(), ridge=0.2))
    places = np.array([[-1.0], [0.3], [1.5]])
    start = world.sample(rng, 50, 5).tokens
    every = np.broadcast_to(places, (50, 3, 1))
    # The truth given the context: f from its exact posterior, and noise.
    truth = world.posterior(start).at(every).sample(rng).swapaxes(1, 2)
    truth = truth + np.sqrt(0.2) * rng.normal(size=truth.shape)

    def functional(pairs: latent.Pairs) -> np.ndarray:
        return module.mean(np.full((len(pairs.keys), 1, 1), 0.3), *pairs)[:, 0, 0]

    return _pairs_coverage(module, start, places, truth, functional, rng)


def urn_coverage(rng: np.random.Generator, frozen: bool) -> float:
    """|z| of the coverage of 90 % intervals for the number of ones in 12 further draws."""
    world = latent.BetaBernoulli(1.0, 1.0)
    tokens = world.sample(rng, 300, 6 + 12).tokens

    class Frozen(WorldLetters):
        def answer(self, tokens: Any) -> Any:
            return super().answer(tokens[:, :6])

    found = coherence.martingale_posterior(
        Frozen(world, 2) if frozen else world,
        tokens[:, :6],
        lambda paths: paths[:, 6:].sum(axis=1),
        horizon=12,
        n_paths=PATHS,
        seed=rng,
    )
    return _covered(found.draws, tokens[:, 6:].sum(axis=1), rng)


def _pairs_coverage(
    target: Any, start: latent.Pairs, places: Any, truth: Any, functional: Any, rng: Any
) -> float:
    found = coherence.martingale_posterior(
        target, tuple(start), functional, places=places, n_paths=PATHS, seed=rng
    )
    every = np.broadcast_to(places, (len(start.keys), *places.shape))
    keys = np.concatenate([start.keys, every], axis=1)
    whole = latent.Pairs(keys, np.concatenate([start.values, truth], axis=1))
    return _covered(found.draws, functional(whole), rng)


def _covered(draws: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> float:
    """|z| of the truths in the middle 90 of 100 ranks, which are all equally likely."""
    below, ties = (draws < truth[:, None]).sum(axis=1), (draws == truth[:, None]).sum(axis=1)
    rank = below + rng.integers(ties + 1)
    inside, count = np.sum((rank >= 5) & (rank <= 94)), len(truth)
    return float(abs(inside - 0.9 * count) / np.sqrt(0.09 * count))


def largest_z(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Of mean and second moments of whitened draws, in their standard errors."""
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    count = white.shape[1]
    first = np.abs(white.mean(axis=1)) * np.sqrt(count)
    second = white @ white.T / count - np.eye(len(mean))
    errors = np.sqrt((1 + np.eye(len(mean))) / count)
    return largest_of(first.max(), np.abs(second / errors).max())
