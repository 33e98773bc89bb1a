"""The defects of predictors over letters: exact sums."""

import numpy as np

from finetti.coherence.defect import TOTAL_VARIATION, Defect
from finetti.coherence.orders import all_letters, draw_orders, reordered
from finetti.coherence.predictors.context_predictor import AlphabetPredictor
from finetti.core.arguments import Floats, Letters

MAX_ENUMERATED = 4096  # contexts, all pairs of which are compared if they have the same letters


def order_of_letters(
    predictor: AlphabetPredictor, tokens: Letters, n_orders: int, rng: np.random.Generator
) -> Defect:
    """The largest total variation between p(· | πX) and p(· | X).

    Over all orders where to ask about all cᴸ contexts takes no more answers than to try some.
    """
    n, length = tokens.shape
    if predictor.n_letters**length <= min(n * (n_orders + 1), MAX_ENUMERATED):
        gaps = _over_all_orders(predictor, tokens)
        return Defect("order", gaps, exact=True, unit=TOTAL_VARIATION, rounding=predictor.rounding)
    orders, complete = draw_orders(tokens.shape[1], n_orders, rng)
    orders = np.concatenate([np.arange(tokens.shape[1])[None], orders])
    found = predictor.predictive(reordered(tokens, orders))
    found = found.reshape(len(tokens), len(orders), -1)
    gaps = np.abs(found - found[:, :1]).sum(axis=2).max(axis=1) / 2
    note = "" if complete else f"the largest over {len(orders) - 1} of all orders"
    return Defect(
        "order", gaps, complete, note=note, unit=TOTAL_VARIATION, rounding=predictor.rounding
    )


def _over_all_orders(predictor: AlphabetPredictor, tokens: Letters) -> Floats:
    """From the answers to all contexts: those with the same letters are orders of each other."""
    every = all_letters(predictor.n_letters, tokens.shape[1])
    found = predictor.predictive(every)
    powers = predictor.n_letters ** np.arange(tokens.shape[1])[::-1]
    sets = np.sort(every, axis=1) @ powers
    gaps = np.empty(len(tokens))
    for index, context in enumerate(tokens):
        others = found[sets == np.sort(context) @ powers]
        gaps[index] = np.abs(others - found[context @ powers]).sum(axis=1).max() / 2
    return gaps


def next_two(predictor: AlphabetPredictor, tokens: Letters) -> tuple[Floats, Floats]:
    """p(x | X), (B, c), and p(x | X) p(y | X, x), (B, c, c)."""
    first, letters = predictor.predictive(tokens), predictor.n_letters
    longer = np.repeat(tokens, letters, axis=0)
    new = np.tile(np.arange(letters), len(tokens))[:, None]
    second = predictor.predictive(np.concatenate([longer, new], axis=1))
    return first, first[:, :, None] * second.reshape(-1, letters, letters)


def martingale_of_letters(predictor: AlphabetPredictor, tokens: Letters) -> Defect:
    """The total variation between Σ_x p(x|X) p(y|X, x) and p(y|X)."""
    first, joint = next_two(predictor, tokens)
    gaps = np.abs(joint.sum(axis=1) - first).sum(axis=1) / 2
    return Defect("martingale", gaps, exact=True, unit=TOTAL_VARIATION, rounding=predictor.rounding)


def two_steps_of_letters(predictor: AlphabetPredictor, tokens: Letters) -> Defect:
    """The total variation between p(x|X) p(y|X, x) and p(y|X) p(x|X, y).

    Of two letters it is the martingale defect: Σ_x p(x|X) p(1|X, x) − p(1|X) is
    p(0|X) p(1|X, 0) − p(1|X) p(0|X, 1).
    """
    joint = next_two(predictor, tokens)[1]
    gaps = np.abs(joint - np.swapaxes(joint, 1, 2)).sum(axis=(1, 2)) / 2
    return Defect("two-step", gaps, exact=True, unit=TOTAL_VARIATION, rounding=predictor.rounding)


def log_joint(predictor: AlphabetPredictor, tokens: Letters) -> Floats:
    """Σ_t log p(x_t | x_1, …, x_{t−1}) of every sequence, (B,)."""
    total = np.zeros(len(tokens))
    for place in range(tokens.shape[1]):
        found = predictor.predictive(tokens[:, :place])
        with np.errstate(divide="ignore"):
            total += np.log(found[np.arange(len(tokens)), tokens[:, place]])
    return total


def sequence_of_letters(
    predictor: AlphabetPredictor, tokens: Letters, n_orders: int, rng: np.random.Generator
) -> Defect:
    """The range over orders π of log p(x_π1, …, x_πn), in nats."""
    orders, complete = draw_orders(tokens.shape[1], n_orders, rng)
    orders = np.concatenate([np.arange(tokens.shape[1])[None], orders])
    found = log_joint(predictor, reordered(tokens, orders)).reshape(len(tokens), -1)
    impossible = np.isneginf(found)
    gaps = np.where(
        impossible.all(axis=1), 0.0, np.where(impossible.any(axis=1), np.inf, np.ptp(found, axis=1))
    )
    note = "" if complete else f"over {len(orders) - 1} of all orders"
    rounding = tokens.shape[1] * predictor.rounding  # log p of every token
    return Defect("sequence", gaps, complete, note=note, unit="nats", rounding=rounding)


def one_letter_moves(predictor: AlphabetPredictor, tokens: Letters) -> float:
    """Σ_x p(x|X) times the total variation between p(·|X, x) and p(·|X), on average over X."""
    first, joint = next_two(predictor, tokens)
    return float(np.abs(joint - first[:, :, None] * first[:, None]).sum(axis=(1, 2)).mean() / 2)
