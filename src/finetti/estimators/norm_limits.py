"""The set of values that the theorem on random-feature attention allows, and two exact maps on it.

V = {Σ_m ‖v_m‖ ≤ a, Σ_m ‖v_m‖² ≤ b²}. Both the nearest point of V and the largest ⟨u, v⟩ over it
shrink the lengths c_m of the blocks to a multiple of (c_m − τ)₊, with one threshold τ: where both
limits bind it solves ‖(c − τ)₊‖₁ / ‖(c − τ)₊‖₂ = a/b, whose left side falls with τ.
"""

from dataclasses import dataclass

import numpy as np

from finetti.core.numerics.extremes import smallest_of
from finetti.estimators.ridge import Floats


@dataclass(frozen=True)
class BlockLimits:
    """V for blocks (M, k).

    Args:
        norm_sum: a, the limit of Σ‖v_m‖.
        root_square_sum: b, the limit of (Σ‖v_m‖²)^½.
    """

    norm_sum: float
    root_square_sum: float

    def contain(self, lengths: Floats) -> bool:
        """Whether blocks of these lengths are allowed."""
        limits = self.norm_sum, self.root_square_sum
        return bool(lengths.sum() <= limits[0] and np.linalg.norm(lengths) <= limits[1])

    def project(self, blocks: Floats) -> Floats:
        """The nearest point of V, (M, k).

        >>> limits = BlockLimits(3.0, 9.0)
        >>> limits.project(np.array([[4.0, 0.0], [0.0, 2.0]]))  # the sum binds: τ = 1.5
        array([[2.5, 0. ],
               [0. , 0.5]])
        """
        lengths = np.linalg.norm(blocks, axis=1)
        if self.contain(lengths):
            return blocks
        shrunk = self._shrink(lengths)
        ratios = np.divide(shrunk, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return blocks * ratios[:, None]

    def _shrink(self, lengths: Floats) -> Floats:
        """The nearest allowed lengths, where these are not allowed."""
        sum_limit, root_limit = self.norm_sum, self.root_square_sum
        on_ball = lengths * min(1.0, root_limit / float(np.linalg.norm(lengths)))
        if on_ball.sum() <= sum_limit:
            return on_ball
        on_simplex = np.maximum(lengths - _simplex_threshold(lengths, sum_limit), 0.0)
        if np.linalg.norm(on_simplex) <= root_limit:
            return on_simplex
        both = np.maximum(lengths - _ratio_threshold(lengths, sum_limit / root_limit), 0.0)
        if not both.any():  # the limits are the same but for rounding: one length is left
            both = on_simplex
        return both * (root_limit / float(np.linalg.norm(both)))

    def support(self, blocks: Floats) -> float:
        """max of ⟨u, v⟩ over V, = min over τ ≥ 0 of aτ + b‖(c − τ)₊‖; never below, for any τ.

        >>> BlockLimits(3.0, 9.0).support(np.array([[4.0], [2.0]]))  # all on the longest block
        12.0
        """
        lengths = np.linalg.norm(blocks, axis=1)
        largest = float(lengths.max(initial=0.0))
        thresholds = [0.0, largest]
        if largest > 0:
            thresholds.append(_ratio_threshold(lengths, self.norm_sum / self.root_square_sum))
        return smallest_of(
            self.norm_sum * threshold
            + self.root_square_sum * float(np.linalg.norm(np.maximum(lengths - threshold, 0.0)))
            for threshold in thresholds
        )


def _simplex_threshold(lengths: Floats, total: float) -> float:
    """τ of Σ(c − τ)₊ = total, where Σc is more."""
    ordered = np.sort(lengths)[::-1]
    counts = np.arange(1, len(ordered) + 1)
    thresholds = (np.cumsum(ordered) - total) / counts
    return float(thresholds[np.flatnonzero(ordered > thresholds)[-1]])


def _ratio_threshold(lengths: Floats, ratio: float) -> float:
    """τ ≥ 0 of ‖(c − τ)₊‖₁ = ratio·‖(c − τ)₊‖₂; an end of [0, max c] where there is none."""
    ordered = np.sort(lengths)[::-1]

    def over(threshold: float) -> bool:
        above = np.maximum(ordered - threshold, 0.0)
        return bool(above.sum() > ratio * np.linalg.norm(above))

    if not over(0.0):
        return 0.0
    few, many = 0, len(ordered)  # τ lies between the lengths at these places
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if over(float(ordered[middle])) else (middle, many)
    active = ordered[:many]
    mean = float(active.mean())
    if many <= ratio**2:  # equal lengths, which lie above the ratio together or not at all
        return float(ordered[0])
    spread = float(np.sum((active - mean) ** 2))
    return max(mean - ratio * (spread / (many * (many - ratio**2))) ** 0.5, 0.0)
