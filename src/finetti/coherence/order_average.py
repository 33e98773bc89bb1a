"""Predictors averaged over orders of their context."""

from typing import Any

import numpy as np

from finetti.coherence.defects.context_orders import draw_orders, reordered
from finetti.coherence.predictors.context_predictor import AlphabetPredictor, RegressionPredictor
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.core.arguments import Floats, Letters, as_generator, as_whole
from finetti.core.errors import UnsupportedError
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
        """Ask about all orders at once."""
        orders = _orders(keys.shape[1], self.n_orders, self.seed)
        context = reordered(Pairs(keys, values), orders)
        asked = np.repeat(query, len(orders), axis=0)
        shape = len(keys), len(orders), query.shape[1], -1
        law = self.predictor.law(asked, *context)
        means = (self.predictor.mean(asked, *context) if law is None else law.mean).reshape(shape)
        self.gives_variance, self.precision = law is not None, self.predictor.precision
        if law is None:
            return means.mean(axis=1), None
        spread = np.asarray(law.variance).reshape(shape).mean(axis=1) + means.var(axis=1)
        return means.mean(axis=1), spread


class OrderAveragedLetters(AlphabetPredictor):
    """(1/P) Σ_π p(x | πX); see `order_averaged`."""

    def __init__(self, predictor: AlphabetPredictor, n_orders: int, seed: int):
        self.predictor, self.n_orders, self.seed = predictor, n_orders, seed
        self.name = f"{predictor.name}, {n_orders} orders"
        self.n_letters = predictor.n_letters

    def answer(self, tokens: Letters) -> Floats:
        """Ask about all orders at once."""
        orders = _orders(tokens.shape[1], self.n_orders, self.seed)
        found = self.predictor.predictive(reordered(tokens, orders))
        self.precision = self.predictor.precision
        return found.reshape(len(tokens), len(orders), -1).mean(axis=1)


def _orders(length: int, n_orders: int, seed: int) -> Any:
    """The same for every context of that length."""
    return draw_orders(length, n_orders, np.random.default_rng([seed, length]))[0]


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
