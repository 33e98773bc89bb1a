"""From any function to the same function of the bits that matter, in increasing order."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.families import Symmetric, TruthTable
from finetti.boolean.language.rule import BooleanFunction, all_bits


@lru_cache(maxsize=32)
def _number_of_ones(n_bits: int) -> NDArray[np.int64]:
    return all_bits(n_bits).sum(axis=1, dtype=np.int64)


def find_profile(function: BooleanFunction) -> NDArray[np.float64] | None:
    """f by its number of ones, p(0), …, p(s), or None if f is not symmetric in its indices.

    >>> find_profile(TruthTable((0, 1), [0, 1, 1, 0])).tolist()
    [0.0, 1.0, 0.0]
    >>> find_profile(TruthTable((0, 1), [0, 1, 0, 0])) is None
    True
    """
    known = function.profile()
    if known is not None:
        return known
    table, n_ones = function.table(), _number_of_ones(function.sparsity)
    profile = np.empty(function.sparsity + 1)
    profile[n_ones] = table  # any setting with r ones speaks for all
    return profile if np.array_equal(profile[n_ones], table) else None


def relevant_indices(function: BooleanFunction) -> tuple[int, ...]:
    """The indices whose bit can change the value, in increasing order.

    >>> relevant_indices(TruthTable((5, 3), [0, 0, 1, 1]))
    (5,)
    """
    return simplify(function).indices


def without_idle(items: list[Any], grid: NDArray[Any]) -> tuple[list[Any], NDArray[Any]]:
    """The items, one per axis of a grid of values, that change a value; and the grid of these.

    >>> without_idle(["a", "b"], np.array([[0, 1], [0, 1]]))
    (['b'], array([0, 1]))
    """
    axis = 0
    while axis < len(items):
        first = np.take(grid, [0], axis)
        if (grid == first).all():
            grid, items = first.squeeze(axis), items[:axis] + items[axis + 1 :]
        else:
            axis += 1
    return items, grid


def simplify(function: BooleanFunction) -> Symmetric | TruthTable:
    """The same function on its relevant indices, `Symmetric` where it is symmetric.

    >>> simplify(TruthTable((9, 2, 5), [0, 0, 0, 1, 0, 0, 0, 1]))
    Symmetric((2, 5), [0.0, 0.0, 1.0])
    """
    known = function.profile()
    if known is not None:
        if (known == known[0]).all():
            return Symmetric((), known[:1])
        return Symmetric(sorted(function.indices), known)
    order = sorted(range(function.sparsity), key=lambda each: function.indices[each])
    cube = function.table().reshape((2,) * function.sparsity).transpose(order)
    indices, cube = without_idle([function.indices[each] for each in order], cube)
    smaller = TruthTable(indices, cube.reshape(-1))
    profile = find_profile(smaller)
    return smaller if profile is None else Symmetric(indices, profile)
