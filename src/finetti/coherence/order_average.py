"""Predictors averaged over orders of their context."""

from typing import Any

import numpy as np

from finetti.coherence.defects.context_orders import draw_orders, reordered
from finetti.coherence.predictors.context_predictor import AlphabetPredictor, RegressionPredictor
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.core.arguments import Floats, Letters, as_generator
from finetti.core.errors import UnsupportedError
from finetti.core.numbers import as_whole
from finetti.core.statistics import mean_with_error
from finetti.latent.world import Pairs


class OrderAveraged(RegressionPredictor):
    """(1/P) Σ_π m(q; πX) over P orders that depend on the length alone; see `order_averaged`.

    A law has the mean of the means, and the mean of the variances plus the variance of the means.
    """

    def __init__(self, predictor: RegressionPredictor, n_orders: int, seed: int):
        self.predictor, self.n_orders, self.seed = predictor, n_orders, seed
        self.name = f"{predictor.name}, {n_orders} orders"
        self.linear, self.categorical = predictor.linear, predictor.categorical
        self.gives_variance = predictor.has_law or predictor.gives_variance

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """Over all orders at once."""
        means, variances = self._all(query, keys, values)
        self.gives_variance, self.precision = variances is not None, self.predictor.precision
        if variances is None:
            return means.mean(axis=1), None
        return means.mean(axis=1), variances.mean(axis=1) + means.var(axis=1)

    def standard_error(self, query: Floats, keys: Floats, values: Floats) -> Floats:
        """Of the mean as an estimate of that over all orders, (B, Q, d_v); 0 where it is."""
        means = self._all(query, keys, values)[0]
        if self._orders(keys.shape[1])[1]:
            return np.zeros_like(means[:, 0])
        return mean_with_error(means, axis=1)[1]

    def _orders(self, length: int) -> tuple[Any, bool]:
        return draw_orders(length, self.n_orders, np.random.default_rng([self.seed, length]))

    def _all(self, query: Floats, keys: Floats, values: Floats) -> tuple[Floats, Floats | None]:
        orders, _ = self._orders(keys.shape[1])
        context = reordered(Pairs(keys, values), orders)
        asked = np.repeat(query, len(orders), axis=0)
        shape = len(keys), len(orders), query.shape[1], -1
        law = self.predictor.law(asked, *context)
        if law is None:
            return self.predictor.mean(asked, *context).reshape(shape), None
        return law.mean.reshape(shape), np.asarray(law.variance).reshape(shape)


class OrderAveragedLetters(AlphabetPredictor):
    """(1/P) Σ_π p(x | πX); see `order_averaged`."""

    def __init__(self, predictor: AlphabetPredictor, n_orders: int, seed: int):
        self.predictor, self.n_orders, self.seed = predictor, n_orders, seed
        self.name = f"{predictor.name}, {n_orders} orders"
        self.n_letters = predictor.n_letters

    def answer(self, tokens: Letters) -> Floats:
        """Over all orders at once."""
        rng = np.random.default_rng([self.seed, tokens.shape[1]])
        orders, _ = draw_orders(tokens.shape[1], self.n_orders, rng)
        found = self.predictor.predictive(reordered(tokens, orders))
        self.precision = self.predictor.precision
        return found.reshape(len(tokens), len(orders), -1).mean(axis=1)


def order_averaged(
    predictor: Any, n_orders: int = 24, seed: int = 0
) -> OrderAveraged | OrderAveragedLetters:
    """The predictor averaged over orders of its context; all, if they are at most ``n_orders``.

    Args:
        predictor: anything that `as_predictor` takes and that can be asked for its answer.
        n_orders: P.
        seed: of the orders.

    >>> from finetti.attention import DeltaRule
    >>> from finetti.coherence import order_defect
    >>> rng = np.random.default_rng(0)
    >>> keys, values, query = (rng.normal(size=shape) for shape in ((3, 2), (3, 1), (2, 2)))
    >>> order_defect(order_averaged(DeltaRule(), 6), (keys, values), query).text
    '✓'
    """
    found, n_orders = as_predictor(predictor), as_whole(n_orders, "n_orders", "order_averaged")
    as_generator(seed, "order_averaged")
    if isinstance(found, RegressionPredictor):
        return OrderAveraged(found, n_orders, seed)
    if isinstance(found, AlphabetPredictor):
        return OrderAveragedLetters(found, n_orders, seed)
    raise UnsupportedError("What can only be sampled is averaged by drawing an order each time.")
