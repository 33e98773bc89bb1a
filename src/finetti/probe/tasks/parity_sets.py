"""Sets of s columns over GF(2) whose sum is given: meeting in the middle, or counted by characters.

A parity fits a sample without errors if the columns of its bits add up to the labels. That is an
affine space, cut with the sets of s elements.
"""

from math import comb

import numpy as np
from numpy.typing import NDArray

from finetti.probe.tasks.set_search import Integers, NotCountedError, SearchState, Words

MAX_SUBSETS = 4 * 10**6  # halves, and pairs of halves that fit: what memory holds
MAX_CHARACTER_ROWS = 20  # samples m for which sums over all 2^m characters are taken


def meet_in_the_middle(columns: Words, labels: Words, sparsity: int, state: SearchState) -> None:
    """Add all increasing tuples of positions whose columns sum to the labels.

    The first half of a tuple is looked up among all sets of that size by the first word of its sum;
    the halves that come out of order, and those that differ in another word, are dropped.
    """
    n_first = sparsity // 2
    sizes = (n_first, sparsity - n_first)
    if comb(len(columns), sizes[1]) > MAX_SUBSETS:
        raise NotCountedError(f"half of the set can stand in more than {MAX_SUBSETS} ways")
    first, second = (_subsets(len(columns), size) for size in sizes)
    keys = _sums(columns[:, 0], first)
    order = np.argsort(keys)
    keys, first = keys[order], first[order]
    wanted = _sums(columns[:, 0], second) ^ labels[0]
    start, stop = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
    n_found = stop - start
    if n_found.sum() > MAX_SUBSETS:
        raise NotCountedError(f"more than {MAX_SUBSETS} pairs of half sets fit")
    rows = np.repeat(np.arange(len(second)), n_found)
    steps = np.arange(len(rows)) - np.repeat(np.cumsum(n_found) - n_found, n_found)
    sets = np.column_stack([first[np.repeat(start, n_found) + steps], second[rows]])
    sets = sets[sets[:, n_first - 1] < sets[:, n_first]]
    total = np.bitwise_xor.reduce(columns[sets], axis=1) if len(sets) else columns[:0]
    sets = sets[(total == labels).all(axis=1)]
    state.count += len(sets)
    state.add_sets(sets[: state.limit], np.zeros(min(len(sets), state.limit), np.int64))


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


def count_by_characters(bits: NDArray[np.uint8], labels: NDArray[np.uint8], sparsity: int) -> int:
    """The number of sets of s columns that sum to the labels, for few rows and any T and s.

    2^{-m} Σ_w (−1)^{w·y} K_s(n(w)), n(w) the number of columns c with w·c = 1, and the Krawtchouk
    number K_s(n) = Σ_i (−1)^i C(n, i) C(T−n, s−i), the sum of χ over all sets of s columns.

    >>> count_by_characters(np.array([[1, 1, 0, 0]], np.uint8), np.array([1], np.uint8), 2)
    4

    Reference: F. J. MacWilliams and N. J. A. Sloane, "The Theory of Error-Correcting Codes", 1977,
    chapter 5.
    """
    m, length = bits.shape
    if m > MAX_CHARACTER_ROWS:
        raise NotCountedError(f"there are more than {MAX_CHARACTER_ROWS} samples")
    weights = 2 ** np.arange(m)
    spectrum = np.bincount(weights @ bits.astype(np.int64), minlength=2**m)
    signs = np.zeros(2**m, np.int64)
    signs[weights @ labels.astype(np.int64)] = 1
    spectrum, signs = _walsh(spectrum), _walsh(signs)
    n_odd = (length - spectrum) // 2
    signed = [np.bincount(n_odd[signs == sign], minlength=length + 1) for sign in (1, -1)]
    total = 0
    for n, weight in enumerate((signed[0] - signed[1]).tolist()):
        if weight:
            total += weight * _krawtchouk(sparsity, n, length)
    return total // 2**m


def _krawtchouk(s: int, n: int, length: int) -> int:
    return sum((-1) ** i * comb(n, i) * comb(length - n, s - i) for i in range(s + 1))


def _walsh(values: Integers) -> Integers:
    """Σ_x (−1)^{w·x} values(x) for all w, without a division."""
    half = 1
    while half < len(values):
        first, second = values.reshape(-1, 2, half).swapaxes(0, 1)
        values = np.stack([first + second, first - second], axis=1).reshape(-1)
        half *= 2
    return values
