"""The sequence defect: how far the probability of a whole sequence depends on its order."""

from typing import Any

import numpy as np

from finetti.coherence.defects.asked_context import read_letters
from finetti.coherence.defects.context_orders import draw_orders, reordered
from finetti.coherence.defects.defect import Defect
from finetti.coherence.defects.order_defect import N_ORDERS
from finetti.coherence.predictors.context_predictor import AlphabetPredictor
from finetti.coherence.predictors.predictor_loading import as_predictor
from finetti.core.arguments import Floats, Letters, as_generator, as_whole
from finetti.core.errors import UnsupportedError


def sequence_defect(
    predictor: Any, context: Any, *, n_orders: int = N_ORDERS, seed: Any = 0
) -> Defect:
    """The range over orders of log p(x_π1, …, x_πn) by the chain rule, in nats; letters only.

    >>> sequence_defect(lambda tokens: [0.5, 0.5], [0, 1, 1]).maximum
    0.0
    """
    owner, found = "sequence_defect", as_predictor(predictor)
    if not isinstance(found, AlphabetPredictor):
        raise UnsupportedError(f"{owner} sums over letters. Of pairs use two_step_defect.")
    tokens = read_letters(context, found.n_letters, owner)
    n_orders = as_whole(n_orders, "n_orders", owner)
    orders, complete = draw_orders(tokens.shape[1], n_orders, as_generator(seed, owner))
    orders = np.concatenate([np.arange(tokens.shape[1])[None], orders])
    logs = log_joint(found, reordered(tokens, orders)).reshape(len(tokens), -1)
    impossible = np.isneginf(logs)
    gaps = np.where(
        impossible.all(axis=1), 0.0, np.where(impossible.any(axis=1), np.inf, np.ptp(logs, axis=1))
    )
    note = "" if complete else f"over {len(orders) - 1} of all orders"
    rounding = tokens.shape[1] * found.rounding  # log p of every token
    return Defect("sequence", gaps, complete, note=note, unit="nats", rounding=rounding)


def log_joint(predictor: AlphabetPredictor, tokens: Letters) -> Floats:
    """Σ_t log p(x_t | x_1, …, x_{t−1}) of every sequence, (B,)."""
    total = np.zeros(len(tokens))
    for place in range(tokens.shape[1]):
        found = predictor.predictive(tokens[:, :place])
        with np.errstate(divide="ignore"):
            total += np.log(found[np.arange(len(tokens)), tokens[:, place]])
    return total
