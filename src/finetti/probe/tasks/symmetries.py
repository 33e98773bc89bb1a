"""Symmetries of a Boolean function: the permutations of its bits that leave it unchanged."""

from itertools import permutations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import BooleanFunction, all_bits
from finetti.boolean.language.simplify import find_profile


def n_symmetries(function: BooleanFunction) -> int:
    """The number of permutations of its bits under which f stays the same; s! if it is symmetric.

    By the orbit-stabilizer theorem: the product over k of the number of positions to which a
    symmetry can take bit k while the bits before it stay.

    >>> from finetti.boolean.language.parser import parse
    >>> n_symmetries(parse("x0 & x1 & x2")), n_symmetries(parse("x0 & x1 | x2 & x3"))
    (6, 8)
    """
    s = function.sparsity
    if find_profile(function) is not None:
        return factorial(s)
    cube = function.table().reshape((2,) * s).astype(np.int64)
    count = 1
    for k in range(s):
        fixed = tuple(range(k))
        count *= sum(_extends(cube, (*fixed, image)) for image in range(k, s))
    return count


def _extends(cube: NDArray[np.int64], images: tuple[int, ...]) -> bool:
    """Whether some symmetry takes the first bits to ``images``.

    The number of ones over the other bits must be the same, which ends most branches early.
    """
    s, k = cube.ndim, len(images)
    others = [each for each in range(s) if each not in images]
    moved = cube.transpose(*images, *others).sum(axis=tuple(range(k, s)))
    if not np.array_equal(moved, cube.sum(axis=tuple(range(k, s)))):
        return False
    return not others or any(_extends(cube, (*images, each)) for each in others)


def arrangements(function: BooleanFunction) -> dict[tuple[int, ...], NDArray[np.uint8]]:
    """One order of the bits for each different function that the orders give, with its table:
    bit k of f is bit order[k] of the table. s!/`n_symmetries` of them.

    >>> from finetti.boolean.language.parser import parse
    >>> list(arrangements(parse("x0 & (x1 | x2)")))
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    s = function.sparsity
    rows = all_bits(s)
    found: dict[bytes, tuple[tuple[int, ...], NDArray[np.uint8]]] = {}
    orders = [tuple(range(s))] if find_profile(function) is not None else permutations(range(s))
    for order in orders:
        table = function.evaluate(rows[:, list(order)]).astype(np.uint8)
        found.setdefault(table.tobytes(), (order, table))
    return dict(found.values())
