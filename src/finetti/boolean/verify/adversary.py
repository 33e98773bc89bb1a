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

from finetti.boolean.embeddings.position_vectors import Indices
from finetti.boolean.network.cls_network import ClsTables
from finetti.core.numerics.extremes import largest_of

MAX_STEPS = 60
MAX_CONDITION = 1e8  # denominators further apart leave float64 too few digits for a proof


@dataclass(frozen=True, eq=False)
class Adversary:
    """The outside bits that make feature ``sign``·Σ_v weights_v·(head's value v) largest."""

    tables: ClsTables  # of the network
    aside: NDArray[np.int64]  # the positions outside I
    head: int  # which head
    weights: NDArray[np.float64]  # how its values enter the feature, a column of W_C^h
    sign: int  # +1 for the maximum, −1 for the minimum

    def _numerator(self, rows: NDArray[Any]) -> NDArray[Any]:
        n_heads, n_values, _ = self.tables.output.shape
        first = n_heads + self.head * n_values
        return self.sign * (rows[:, first : first + n_values] @ self.weights)

    @cached_property
    def _ratios(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """What turning each outside bit on changes: numerator, denominator, and their ratio."""
        rows = self.tables.difference(self.aside)
        top, bottom = self._numerator(rows), rows[:, self.head]
        with np.errstate(invalid="ignore", divide="ignore"):  # no ratio where nothing changes
            return top, bottom, top / bottom

    @cached_property
    def _sorted(self) -> tuple[NDArray[Any], ...]:
        """Bits whose denominator grows (on above a ratio λ), or shrinks (below), with sums.

        Sums add the entry of bit 0 or of bit 1, whichever is chosen: nothing is taken away again,
        so that denominators are as exact as their terms whatever the size of what is left out.
        """
        top, bottom, ratio = self._ratios
        zero, one = self.tables.zero[self.aside], self.tables.one[self.aside]
        up = np.flatnonzero(bottom > 0)
        up = up[np.argsort(ratio[up])]
        down = np.flatnonzero(bottom < 0)
        down = down[np.argsort(ratio[down])]
        stays = bottom == 0
        above = _before(zero[up]) + _before(one[up][::-1])[::-1]
        below = _before(one[down]) + _before(zero[down][::-1])[::-1]
        always = one[stays & (top > 0)].sum(axis=0) + zero[stays & ~(top > 0)].sum(axis=0)
        return ratio[up], above, ratio[down], below, always

    def _outside(self, level: NDArray[np.float64]) -> NDArray[Any]:
        """The sums over the outside bits if they are set for the ratio ``level``."""
        up, above, down, below, always = self._sorted
        return (
            above[np.searchsorted(up, level, side="right")]
            + below[np.searchsorted(down, level, side="left")]
            + always
        )

    def maximize_ratio(
        self, inside: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[Any]]:
        """For each row of ``inside`` (`settings_sums`): the extreme value, the ratio by which its
        outside bits were set (`bits`), and its sums. NaN where the iteration did not end."""
        start = inside + self.tables.zero[self.aside].sum(axis=0)
        level = self._numerator(start) / start[:, self.head]
        used, changed, ended = level, start, np.zeros(len(inside), dtype=bool)
        for _ in range(MAX_STEPS):
            used = level
            changed = inside + self._outside(used)
            better = self._numerator(changed) / changed[:, self.head]
            ended = better <= level
            if ended.all():
                break
            level = np.maximum(better, level)
        return np.where(ended, self.sign * level, np.nan), used, changed

    def condition(self, inside: NDArray[Any]) -> NDArray[np.float64]:
        """How many times larger the largest denominator of a row is than its least.

        The ratio that decides over a bit is known to rounding times the largest value, so a bit
        may be set wrongly that adds this rounding of the largest denominator to the least one.
        """
        both = self.tables.zero[self.aside, self.head], self.tables.one[self.aside, self.head]
        own = inside[:, self.head]
        return (own + np.maximum(*both).sum()) / (own + np.minimum(*both).sum())

    def bits(self, used: float) -> NDArray[np.bool_]:
        """The outside bits that `maximize_ratio` set for a ratio."""
        top, bottom, ratio = self._ratios
        grown = (bottom > 0) & (ratio > used)
        return grown | ((bottom < 0) & (ratio < used)) | ((bottom == 0) & (top > 0))


def _before(rows: NDArray[Any]) -> NDArray[Any]:
    """Sums of the first 0, 1, …, n rows."""
    out = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=out[1:])
    return out


def adversaries(tables: ClsTables, indices: Indices) -> list[tuple[int, Adversary]]:
    """For each feature, the adversaries of the heads that write it, up and down."""
    aside = np.delete(np.arange(tables.length), list(indices))
    found = []
    for feature in range(tables.output.shape[2]):
        for head in range(tables.n_heads):
            weights = tables.output[head, :, feature]
            if weights.any():
                for sign in (1, -1):
                    found.append((feature, Adversary(tables, aside, head, weights, sign)))
    return found


def feature_ranges(
    tables: ClsTables, indices: Indices, settings: NDArray[np.uint8]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Least and largest value of each feature over ALL outside bits, shape (settings, features),
    and by how much rounding may have moved them.

    Exact where one head writes a feature; where several do, their ranges are added, which can
    only be wider. NaN where float64 cannot tell (`Adversary.condition`).
    """
    low = np.zeros((len(settings), tables.output.shape[2]))
    high, worst = low.copy(), 1.0
    inside = tables.settings_sums(indices, settings)
    for feature, adversary in adversaries(tables, indices):
        value, _, _ = adversary.maximize_ratio(inside)
        condition = adversary.condition(inside)
        worst = largest_of(worst, float(condition.max(initial=1.0)))
        target = high if adversary.sign > 0 else low
        target[:, feature] += np.where(condition <= MAX_CONDITION, value, np.nan)
    steps = 4.0 * (len(tables.zero) + 16) * tables.n_heads
    rounding = steps * float(np.finfo(tables.zero.dtype).eps) * tables.largest * worst
    return low, high, rounding
