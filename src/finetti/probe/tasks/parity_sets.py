"""Sets of s columns over GF(2) whose sum is given, by meeting in the middle.

A parity fits a sample without errors if the columns of its bits add up to the labels. That is an
affine space, cut with the sets of s elements.
"""

from math import comb

import numpy as np
from numpy.typing import NDArray

from finetti.probe.tasks.set_search import Integers, NotCountedError, SearchState, Words

MAX_SUBSETS = 4 * 10**6  # halves, and pairs of halves that fit: what memory holds
FEW_SUBSETS = 10**5  # halves that are looked at where all of them are too many


def meet_in_the_middle(columns: Words, labels: Words, sparsity: int, state: SearchState) -> None:
    """Add all increasing tuples of positions whose columns sum to the labels.

    The first half of a tuple is looked up among all sets of that size by the first word of its sum;
    the halves that come out of order, and those that differ in another word, are dropped. Where
    there are more halves than memory holds, some are looked at before the search is given up: two
    sets among them say already that the labels do not tell one.
    """
    n_first = sparsity // 2
    sizes = (n_first, sparsity - n_first)
    length, too_many = len(columns), ""
    if comb(length, sizes[1]) > MAX_SUBSETS:
        too_many = f"half of the set can stand in more than {MAX_SUBSETS} ways"
        length = next(n for n in range(length, 0, -1) if comb(n, sizes[1]) <= FEW_SUBSETS)
    first, second = (_subsets(length, size) for size in sizes)
    keys = _sums(columns[:, 0], first)
    order = np.argsort(keys)
    keys, first = keys[order], first[order]
    wanted = _sums(columns[:, 0], second) ^ labels[0]
    start, stop = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
    n_found = stop - start
    if n_found.sum() > MAX_SUBSETS:
        too_many = f"more than {MAX_SUBSETS} pairs of half sets fit"
        # Late second halves: more of the first halves stand before them.
        kept = np.cumsum(n_found[::-1])[::-1] <= MAX_SUBSETS
        second, start, n_found = second[kept], start[kept], n_found[kept]
    rows = np.repeat(np.arange(len(second)), n_found)
    steps = np.arange(len(rows)) - np.repeat(np.cumsum(n_found) - n_found, n_found)
    sets = np.column_stack([first[np.repeat(start, n_found) + steps], second[rows]])
    sets = sets[sets[:, n_first - 1] < sets[:, n_first]]
    total = np.bitwise_xor.reduce(columns[sets], axis=1) if len(sets) else columns[:0]
    sets = sets[(total == labels).all(axis=1)]
    state.count += len(sets)
    state.add_sets(sets[: state.limit])
    if too_many:
        raise NotCountedError(too_many)


def _subsets(n: int, size: int) -> Integers:
    """All increasing tuples of ``size`` numbers below n, one per row."""
    found = np.arange(n)[:, None]
    for _ in range(size - 1):
        n_more = n - 1 - found[:, -1]
        steps = np.arange(n_more.sum()) - np.repeat(np.cumsum(n_more) - n_more, n_more)
        longer = np.repeat(found, n_more, axis=0)
        found = np.column_stack([longer, longer[:, -1] + 1 + steps])
    return found


def _sums(words: NDArray[np.uint64], sets: Integers) -> NDArray[np.uint64]:
    total = words[sets[:, 0]]
    for k in range(1, sets.shape[1]):
        total ^= words[sets[:, k]]
    return total
