"""The bits outside I that move a head the most: found exactly, not sampled.

For fixed bits in I a head reads (A + Σ_t n_{b_t,t})/(D + Σ_t d_{b_t,t}), a ratio of two sums over
the other positions. Its maximum λ* over all 2^{T−s} choices sets b_t = 1 exactly where
(n_1 − n_0) > λ*(d_1 − d_0), and Dinkelbach's iteration finds λ* in a few steps. After one sort each
step costs O(log T) per setting of I, so that 2^T inputs are covered in O(T log T).

Reference: W. Dinkelbach, "On nonlinear fractional programming", Management Science 13 (1967).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.network.tables import Tables

MAX_STEPS = 60


@dataclass(frozen=True, eq=False)
class Adversary:
    """The outside bits that make feature ``sign``·Σ_v weights_v·(head's value v) largest.

    Args:
        tables: of the network.
        aside: the positions outside I.
        head: which head.
        weights: how its values enter the feature, a column of W_C^h.
        sign: +1 for the maximum, −1 for the minimum.
    """

    tables: Tables
    aside: NDArray[np.int64]
    head: int
    weights: NDArray[np.float64]
    sign: int

    def _numerator(self, rows: NDArray[Any]) -> NDArray[Any]:
        n_heads, n_values, _ = self.tables.output.shape
        first = n_heads + self.head * n_values
        return self.sign * (rows[:, first : first + n_values] @ self.weights)

    @cached_property
    def _changes(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """What turning each outside bit on changes: numerator, denominator, all columns."""
        rows = self.tables.difference[self.aside]
        return self._numerator(rows), rows[:, self.head], rows

    @cached_property
    def _sorted(self) -> tuple[NDArray[Any], ...]:
        """Bits whose denominator grows (on above a ratio λ), or shrinks (below), with sums."""
        top, bottom, rows = self._changes
        grows, shrinks, stays = bottom > 0, bottom < 0, bottom == 0
        up = np.flatnonzero(grows)[np.argsort(top[grows] / bottom[grows])]
        down = np.flatnonzero(shrinks)[np.argsort(top[shrinks] / bottom[shrinks])]
        none = np.zeros((1, rows.shape[1]))
        above = np.concatenate([np.cumsum(rows[up][::-1], axis=0)[::-1], none])
        below = np.concatenate([none, np.cumsum(rows[down], axis=0)])
        always = rows[stays & (top > 0)].sum(axis=0)
        return top[up] / bottom[up], above, top[down] / bottom[down], below, always

    def _outside(self, level: NDArray[np.float64]) -> NDArray[Any]:
        """The change of all sums if the bits are set for the ratio ``level``."""
        up, above, down, below, always = self._sorted
        return (
            above[np.searchsorted(up, level, side="right")]
            + below[np.searchsorted(down, level, side="left")]
            + always
        )

    def attack(self, sums: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """The extreme value for each row of ``sums`` (its outside bits all 0), and its sums."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            level = self._numerator(sums) / sums[:, self.head]
            changed = sums
            for _ in range(MAX_STEPS):
                changed = sums + self._outside(level)
                better = self._numerator(changed) / changed[:, self.head]
                if not (better > level).any():
                    break
                level = np.fmax(better, level)
        return self.sign * level, changed

    def bits(self, level: float) -> NDArray[np.bool_]:
        """The outside bits for a value found by `attack`."""
        top, bottom, _ = self._changes
        return top > self.sign * level * bottom


def adversaries(tables: Tables, indices: tuple[int, ...]) -> list[tuple[int, Adversary]]:
    """For each feature, the adversaries of the heads that write it, up and down."""
    aside = np.delete(np.arange(len(tables.zero)), list(indices))
    found = []
    for feature in range(tables.output.shape[2]):
        for head in range(tables.n_heads):
            weights = tables.output[head, :, feature]
            if weights.any():
                for sign in (1, -1):
                    found.append((feature, Adversary(tables, aside, head, weights, sign)))
    return found


def settings_sums(
    tables: Tables, indices: tuple[int, ...], settings: NDArray[np.uint8]
) -> NDArray[Any]:
    """Sums for each setting of the bits in I, all other bits 0."""
    changes = tables.difference[list(indices)]
    return tables.base + settings.astype(changes.dtype) @ changes


def feature_ranges(
    tables: Tables, indices: tuple[int, ...], settings: NDArray[np.uint8]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest value of each feature over ALL outside bits, shape (settings, features).

    Exact where one head writes a feature; where several do, their ranges are added, which can
    only be wider.
    """
    sums = settings_sums(tables, indices, settings)
    low = np.zeros((len(settings), tables.output.shape[2]))
    high = low.copy()
    for feature, adversary in adversaries(tables, indices):
        value, _ = adversary.attack(sums)
        target = high if adversary.sign > 0 else low
        target[:, feature] += value
    return low, high
