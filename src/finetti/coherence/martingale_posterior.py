"""Error bars for any predictor: let it continue its own sequence, many times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.coherence.defects.context_pairs import as_pairs
from finetti.coherence.predictors.context_predictor import (
    AlphabetPredictor,
    LawSampler,
    RegressionPredictor,
    repeated,
)
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.core.arguments import Floats, as_generator, as_letters, as_whole
from finetti.core.errors import bad_argument
from finetti.core.statistics.intervals import Interval, percentile_interval
from finetti.display import Card, Displayable
from finetti.latent.world import append_token


@dataclass(frozen=True, eq=False)
class MartingalePosterior(Displayable):
    """Draws of a functional of the completed sequence, (B, paths, …), or (paths, …) of one."""

    name: str
    draws: Floats
    horizon: int
    axis: int

    @property
    def mean(self) -> Floats:
        """Return the mean over paths."""
        return self.draws.mean(axis=self.axis)

    @property
    def standard_deviation(self) -> Floats:
        """Return the deviation over paths: the epistemic uncertainty."""
        return self.draws.std(axis=self.axis, ddof=1)

    def interval(self, confidence: float = 0.9) -> Interval:
        """Return the interval between quantiles of the paths."""
        return percentile_interval(self.draws, confidence, "martingale posterior", axis=self.axis)

    def __card__(self) -> Card:
        fields = (
            ("paths", self.draws.shape[self.axis]),
            ("tokens sampled", self.horizon),
            ("mean", np.array2string(np.asarray(self.mean), precision=4)),
            ("standard deviation", np.array2string(self.standard_deviation, precision=4)),
        )
        return Card(f"Martingale posterior of {self.name}", fields)


def martingale_posterior(
    predictor: Any,
    context: Any,
    functional: Callable[[Any], Any],
    *,
    horizon: int | None = None,
    places: Any = None,
    n_paths: int = 200,
    seed: Any = 0,
) -> MartingalePosterior:
    """Samples x_{n+1}, …, x_N from the predictor's own laws, path by path; a functional of each.

    The spread of the functional is what the predictor does not know of the latent. For a coherent
    predictor it is a posterior, up to what the N − n sampled tokens leave open.

    Args:
        predictor: anything that `as_predictor` takes and that has a law, or can be sampled.
        context: (keys, values) or letters, as of `order_defect`.
        functional: of completed sequences: letters (paths, N), or `Pairs` with a first axis of
            paths; returns an array with that first axis.
        horizon: N − n of letters.
        places: keys (N − n, d_k) of the pairs that are sampled, in their order.
        n_paths: per context.
        seed: of all draws; a Generator or a seed.

    >>> from finetti.latent import BetaBernoulli
    >>> found = martingale_posterior(
    ...     BetaBernoulli(), [1, 1, 1, 0], lambda tokens: tokens.mean(axis=1), horizon=400
    ... )
    >>> exact = BetaBernoulli().posterior(np.array([[1, 1, 1, 0]]))
    >>> float(abs(found.mean - exact.mean[0])) < 0.05
    True

    Reference: Fong, Holmes and Walker, arXiv 2103.15671.
    """
    owner, rng = "martingale_posterior", as_generator(seed, "martingale_posterior")
    found, n_paths = as_predictor(predictor), as_whole(n_paths, "n_paths", owner)
    sampled = (
        LawSampler(found) if isinstance(found, RegressionPredictor | AlphabetPredictor) else found
    )
    if sampled.n_letters is not None:
        if horizon is None or places is not None:
            wanted = "given, and no places: letters have none"
            raise bad_argument("horizon", owner, wanted, horizon)
        tokens = np.asarray(context)
        single, length = tokens.ndim == 1, as_whole(horizon, "horizon", owner)
        tokens = as_letters(tokens[None] if single else tokens, sampled.n_letters, owner)
        paths: Any = np.repeat(tokens, n_paths, axis=0)
        n, queries = len(tokens), [None] * length
    else:
        if places is None or horizon not in (None, len(places)):
            wanted = "keys (N − n, d_k), one for each pair that is sampled"
            raise bad_argument("places", owner, wanted, None if places is None else len(places))
        single = np.ndim(context[0]) == 2
        keys = np.asarray(places, np.float64)
        size = 1 if single else len(context[0])
        every = np.broadcast_to(keys, (size, *keys.shape))
        pairs, _, _ = as_pairs(context, every, None, owner)
        paths, n, length = repeated(pairs, n_paths), len(pairs.keys), len(keys)
        queries = [np.broadcast_to(each, (n * n_paths, len(each))) for each in keys]
    for query in queries:
        paths = append_token(paths, sampled.sample(rng, paths, query)[0], query)
    draws = np.asarray(functional(paths), np.float64)
    if draws.ndim < 1 or len(draws) != n * n_paths:
        wanted = f"a function with one answer per path, of shape ({n * n_paths}, …)"
        raise bad_argument("functional", owner, wanted, f"shape {draws.shape}")
    draws = draws.reshape(n, n_paths, *draws.shape[1:])
    return MartingalePosterior(
        found.name, draws[0] if single else draws, length, 0 if single else 1
    )
