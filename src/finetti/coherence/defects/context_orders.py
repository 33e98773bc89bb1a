"""Orders in which a context can be read."""

import itertools
import math
from typing import Any

import numpy as np

from finetti.latent.world import Pairs


def draw_orders(length: int, n_orders: int, rng: np.random.Generator) -> tuple[Any, bool]:
    """All orders of ``length`` tokens if they are no more than ``n_orders``, else the reversed one
    and random ones, (P, L); and whether they are all.

    >>> rng = np.random.default_rng(0)
    >>> draw_orders(3, 10, rng)[1], draw_orders(9, 5, rng)[0].shape
    (True, (5, 9))
    """
    if length <= 8 and math.factorial(length) <= n_orders:
        return np.array(list(itertools.permutations(range(length))), np.intp), True
    rest = [rng.permutation(length) for _ in range(n_orders - 1)]
    return np.array([np.arange(length)[::-1], *rest], np.intp).reshape(n_orders, length), False


def all_letters(n_letters: int, length: int) -> Any:
    """All sequences of ``length`` letters, (cᴸ, L), in rising order.

    >>> all_letters(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    every = list(itertools.product(range(n_letters), repeat=length))
    return np.array(every, np.intp).reshape(len(every), length)


def reordered(context: Any, orders: Any) -> Any:
    """Every context (B, L, …) in every order, (B·P, L, …), the orders of one side by side."""
    if isinstance(context, Pairs):
        return Pairs(*(reordered(part, orders) for part in context))
    moved = context[:, orders]
    return moved.reshape(len(context) * len(orders), *moved.shape[2:])
