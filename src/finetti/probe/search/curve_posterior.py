"""The posterior of a success curve after few trials, on a grid.

The design needs this beside the fit of `probe.analysis`: after three trials a curve has no best
fit, but it has a posterior, and a ceiling that nobody has seen yet is part of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from finetti.probe.analysis.curve_fits import LEAST_STEEPNESS

Array = NDArray[np.float64]

# Shares of the way from the level up to 1, with prior weights: most learners succeed nearly always.
CEILINGS_ABOVE = ((1.0, 0.4), (0.96, 0.2), (0.85, 0.14), (0.65, 0.09), (0.4, 0.06), (0.15, 0.03))
# Shares of the level: learners that never reach it, whatever the number of samples.
CEILINGS_BELOW = ((0.85, 0.03), (0.5, 0.03), (0.1, 0.02))
SLOPES = np.geomspace(LEAST_STEEPNESS, 128.0, 15)  # 10 % to 90 % within a factor 80, or within 3 %
N_PLACES = 96
REACH = np.log(4.0)  # how far beyond the ends of the range a crossing is looked for
PASSES = 3
NEGLIGIBLE = 1e-8


@dataclass(frozen=True)
class Counts:
    """Trials and successes at each number of samples, in their order."""

    n_samples: NDArray[np.int64]
    trials: NDArray[np.int64]
    successes: NDArray[np.int64]

    @classmethod
    def of(cls, history: Iterable[tuple[int, int, int]]) -> "Counts":
        """The sums over rows (samples, trials, successes) of equal samples."""
        sums: dict[int, tuple[int, int]] = {}
        for n_samples, trials, successes in history:
            before = sums.get(n_samples, (0, 0))
            sums[n_samples] = before[0] + trials, before[1] + successes
        columns = np.array([(m, *sums[m]) for m in sorted(sums)], dtype=np.int64).reshape(-1, 3)
        return cls(*columns.T)

    @property
    def rows(self) -> tuple[tuple[int, int, int], ...]:
        """(samples, trials, successes), as Python's numbers."""
        columns = (self.n_samples, self.trials, self.successes)
        return tuple(zip(*(each.tolist() for each in columns), strict=True))


@dataclass(frozen=True)
class CurvePosterior:
    """Weights of curves P(m) = c·σ(logit(p/c) + b(log m − x)), which reach the level p at e^x.

    A curve with a ceiling c ≤ p never does; its x is where it reaches c/2. The prior is flat in x,
    from a quarter of the least to four times the most samples, and in log b.

    Args:
        crossing: x, or infinity, of each curve.
        slope, offset, ceiling, place: b, logit(p/c), c and x.
        weight: posterior weights, whose sum is 1.
        axis, mass: the values of x, and the weight of the curves that cross there.
    """

    crossing: Array
    place: Array
    slope: Array
    offset: Array
    ceiling: Array
    weight: Array
    axis: Array
    mass: Array

    def kept(self, share: float) -> "CurvePosterior":
        """Without the curves that weigh less than ``share`` of the heaviest one."""
        heavy = self.weight > share * self.weight.max()
        names = ("crossing", "place", "slope", "offset", "ceiling", "weight")
        parts = {name: getattr(self, name)[heavy] for name in names}
        return replace(self, **{**parts, "weight": parts["weight"] / parts["weight"].sum()})

    def success(self, place: Array) -> Array:
        """P(m) of every curve at each log m, (curves, places)."""
        odds = self.offset[:, None] + self.slope[:, None] * (place - self.place[:, None])
        return self.ceiling[:, None] * special.expit(odds)

    def cumulative(self, place: float) -> float:
        """The probability that the level is reached at log m ≤ ``place``."""
        edges, total = self._cumulated()
        return float(np.interp(place, edges, total))

    def quantile(self, probability: float) -> float:
        """The x below which the crossing is with this probability; infinity if nowhere."""
        edges, total = self._cumulated()
        if probability > total[-1]:
            return np.inf
        return float(np.interp(probability, total, edges))

    def _cumulated(self) -> tuple[Array, Array]:
        """The distribution function of the crossing, linear between the edges of the axis."""
        half = (self.axis[1] - self.axis[0]) / 2
        return np.append(self.axis[0] - half, self.axis + half), np.append(0.0, self.mass.cumsum())


def curve_posterior(counts: Counts, level: float, low: float, high: float) -> CurvePosterior:
    """The posterior after ``counts``, for crossings about [``low``, ``high``] in log m.

    The grid is laid out again where the weight is, so that it is fine enough at every stage.
    """
    posterior = _on_grid(counts, level, np.linspace(low - REACH, high + REACH, N_PLACES))
    for _ in range(PASSES - 1):
        axis = posterior.axis
        by_place = posterior.weight.reshape(N_PLACES, -1).sum(axis=1)
        (alive,) = np.nonzero(by_place > NEGLIGIBLE * by_place.max())
        ends = axis[max(0, alive[0] - 1)], axis[min(N_PLACES - 1, alive[-1] + 1)]
        if ends[1] - ends[0] > 0.7 * (axis[-1] - axis[0]):
            break
        posterior = _on_grid(counts, level, np.linspace(*ends, N_PLACES))
    return posterior


def _on_grid(counts: Counts, level: float, axis: Array) -> CurvePosterior:
    above = [(level + (1 - level) * share, weight) for share, weight in CEILINGS_ABOVE]
    below = [(level * share, weight) for share, weight in CEILINGS_BELOW]
    ceilings, prior = np.array(above + below).T
    # Beside each other: places, slopes, ceilings.
    x, b, c = np.meshgrid(axis, SLOPES, ceilings, indexing="ij")
    crosses = ceilings > level
    offset = special.logit(np.where(crosses, level / ceilings, 0.5))
    log_weight = np.broadcast_to(np.log(prior), x.shape).copy()
    for n_samples, trials, successes in counts.rows:
        odds = offset + b * (np.log(n_samples) - x)
        if successes:
            log_weight += successes * (np.log(c) + special.log_expit(odds))
        if successes < trials:
            failing = (1 - c) + c * special.expit(-odds)
            log_weight += (trials - successes) * np.log(np.maximum(failing, 1e-300))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mass = weight[:, :, crosses].sum(axis=(1, 2))
    crossing = np.where(crosses, x, np.inf)
    offsets = np.broadcast_to(offset, x.shape)
    flat = (each.ravel() for each in (crossing, x, b, offsets, c, weight))
    return CurvePosterior(*flat, axis=axis, mass=mass)
