"""Lemma A.8: how to share an error between parts so that the covers together are smallest."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from finetti.core.errors import bad_argument
from finetti.core.logspace import log_sum


def allocate(
    log_costs: ArrayLike, log_weights: ArrayLike, log_budget: float = 0.0
) -> tuple[float, NDArray[np.float64]]:
    """min Σ α_i/x_i² subject to Σ β_i x_i = C, x_i > 0: the log of γ³/C², and the log x_i

        γ = Σ α_i^{1/3} β_i^{2/3},   x_i = (C/γ)(α_i/β_i)^{1/3}               Lemma A.8, edelman2022

    Printed without x_i > 0, where the infimum is 0 (erratum 14).

    Args:
        log_costs: log α_i; a part that costs nothing (−∞) gets nothing.
        log_weights: log β_i.
        log_budget: log C.

    >>> least, shares = allocate(np.log([1.0, 8.0]), np.log([1.0, 1.0]))
    >>> round(np.exp(least), 9), np.exp(shares).round(9)
    (np.float64(27.0), array([0.33333333, 0.66666667]))
    """
    costs = np.asarray(log_costs, dtype=np.float64)
    weights = np.asarray(log_weights, dtype=np.float64)
    if costs.shape != weights.shape or costs.ndim != 1 or costs.size == 0:
        raise bad_argument("log_weights", "allocate", "as many as the costs", weights.shape)
    log_gamma = float(log_sum(costs / 3 + 2 * weights / 3))
    return 3 * log_gamma - 2 * log_budget, log_budget - log_gamma + (costs - weights) / 3
