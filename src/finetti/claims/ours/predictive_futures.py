"""Martingale posteriors against exact ones, each as one number."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from finetti import attention, coherence, kernels, latent
from finetti.claims.ours.flawed_predictors import Selective
from finetti.core.numerics.extremes import largest_of

PATHS = 99  # and the truth: 100 ranks
PLACES = np.array([[-1.0], [0.3], [1.5]])  # at which the Gaussian process is looked at


def urn(rng: np.random.Generator, paths: int, frozen: bool) -> float:
    """p-value of χ² of the ones among 12 more draws, against the Beta-binomial law."""
    start, horizon = np.array([1, 1, 1, 0]), 12
    world = latent.BetaBernoulli(1.0, 1.0)
    found = coherence.martingale_posterior(
        Selective(world, slice(len(start))) if frozen else world,
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


def urn_coverage(rng: np.random.Generator, frozen: bool) -> float:
    """|z| of the coverage of 90 % intervals for the number of ones in 12 further draws."""
    world = latent.BetaBernoulli(1.0, 1.0)
    tokens = world.sample(rng, 300, 6 + 12).tokens
    found = coherence.martingale_posterior(
        Selective(world, slice(6)) if frozen else world,
        tokens[:, :6],
        lambda paths: paths[:, 6:].sum(axis=1),
        horizon=12,
        n_paths=PATHS,
        seed=rng,
    )
    return _covered(found.draws, tokens[:, 6:].sum(axis=1), rng)


@dataclass(frozen=True)
class PairsFuture:
    """Pairs of a world, and the latent of which their continuation should tell.

    Args:
        world: that draws them.
        target: the predictor that continues them.
        places: generator → the keys of the pairs to come.
        law: pairs → z or f at a few places given them, as a `MatrixPosterior` of one row.
        read: (latent, places) → the values there without noise, (n, places, 1).
    """

    world: Any
    target: Any
    places: Callable[[np.random.Generator], np.ndarray]
    law: Callable[[latent.Pairs], Any]
    read: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def largest_z(self, rng: np.random.Generator, paths: int, seen: int) -> float:
        """Of the moments of E[latent | completed], after so many pairs."""
        start, places = self.world.sample(rng, 1, seen).tokens, self.places(rng)
        draws = self._continued(start, places, paths, rng)[0]
        before = self.law(start)
        whole = _completed(start, places, np.zeros((1, len(places), 1)))
        told = before.row_covariance[0] - self.law(whole).row_covariance[0]
        return largest_z(draws, before.mean[0, 0], told)

    def coverage(self, rng: np.random.Generator, count: int, seen: int) -> float:
        """|z| of how many true completed sequences are covered, of ``count``."""
        start, places = self.world.sample(rng, count, seen).tokens, self.places(rng)
        truth = self.read(self.law(start).sample(rng), places)
        truth = truth + np.sqrt(self.world.noise_variance) * rng.normal(size=truth.shape)
        draws = self._continued(start, places, PATHS, rng)
        wanted = self.law(_completed(start, places, truth)).mean[:, 0, 0]
        return _covered(draws[:, :, 0], wanted, rng)

    def _continued(self, start: Any, places: Any, paths: int, rng: Any) -> np.ndarray:
        """E[latent | completed], (sequences, paths, entries)."""
        found = coherence.martingale_posterior(
            self.target,
            tuple(start),
            lambda pairs: self.law(pairs).mean[:, 0],
            places=places,
            n_paths=paths,
            seed=rng,
        )
        return found.draws


def linear_future(change: Callable[[Any], Any] | None = None) -> PairsFuture:
    """z of the linear-Gaussian world, and ten pairs more; with a wrong version of the predictor."""
    world = latent.LinearGaussian(key_dimension=2, value_dimension=1, noise_variance=0.5)
    return PairsFuture(
        world,
        change(world) if change else world,
        lambda rng: rng.normal(size=(10, 2)),
        world.posterior,
        lambda z, places: places @ z.swapaxes(1, 2),
    )


def process_future() -> PairsFuture:
    """A Gaussian process at three keys; CME attention sees each of them three times more."""
    world = latent.GaussianProcessWorld(key_dimension=1, noise_variance=0.2)

    def law(pairs: latent.Pairs) -> Any:
        return world.posterior(pairs).at(np.broadcast_to(PLACES, (len(pairs.keys), 3, 1)))

    return PairsFuture(
        world,
        attention.ConditionalMean(kernels.RBF(), ridge=0.2),
        lambda rng: np.tile(PLACES, (3, 1)),
        law,
        lambda f, places: np.tile(f.swapaxes(1, 2), (1, 3, 1)),
    )


def _completed(start: latent.Pairs, places: np.ndarray, values: np.ndarray) -> latent.Pairs:
    every = np.broadcast_to(places, (len(start.keys), *places.shape))
    keys = np.concatenate([start.keys, every], axis=1)
    return latent.Pairs(keys, np.concatenate([start.values, values], axis=1))


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
