"""How many matrices come within x of every matrix of a class, in spectral norm: no T anywhere.

All take logarithms of norms and of x, numbers or arrays, and give log N, which is never larger than
a float: docs/theory/beyond.md has the derivations. A cover is *inside* if it consists of members of
its class. One outside it at x/2 gives one inside at x: of every ball that meets the class take a
member.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.covering.ball_cover import count_cover
from finetti.bounds.value import BoundValue, Sample, Term, log_of
from finetti.core.checked_fields import real
from finetti.core.numerics.logspace import log_binomial

LOG_2, LOG_4 = math.log(2), math.log(4)
POWERS = (2.0, 1.0, 0.5, 0.25)  # of the Schatten norms: Frobenius, nuclear, and two quasi-norms
# e^(log a) misses a whole number by rounding; without this, ⌈16.000000000000004⌉ would be 17.
_ROUNDING = 1e-12
_LARGEST = 600.0  # more atoms than e^600 are never fewer than parameters


def maurey_atoms(log_entry_norm: ArrayLike, log_resolution: ArrayLike) -> NDArray[np.float64]:
    """k = ⌈B₁²/x²⌉, of how many atoms an average is within x; at least 1, ∞ above e^600."""
    log_ratio = 2 * np.subtract(log_entry_norm, log_resolution, dtype=np.float64)
    atoms = np.ceil(np.exp(np.minimum(log_ratio, _LARGEST)) * (1 - _ROUNDING))
    return np.where(log_ratio > _LARGEST, np.inf, np.maximum(atoms, 1.0))


def maurey_cover(
    parameters: ArrayLike, log_entry_norm: ArrayLike, log_resolution: ArrayLike
) -> Any:
    """log N = log C(2D + k, k), k = ⌈B₁²/x²⌉, for Σ|w_ij| ≤ B₁

    Every such matrix is a mean of the 2D + 1 atoms ±B₁e_ie_jᵀ and 0, and the average of some k of
    them is within B₁/√k in Frobenius norm. It stays in Σ|w_ij| ≤ B₁, but not in a spectral ball:
    outside.

    >>> round(float(maurey_cover(64, math.log(2.0), math.log(0.5))), 9)
    47.980200431
    """
    atoms = maurey_atoms(log_entry_norm, log_resolution)
    doubled, atoms = np.broadcast_arrays(2 * np.asarray(parameters, dtype=np.float64), atoms)
    few = np.where(np.isinf(atoms), 1.0, atoms)
    found = log_binomial(doubled + few, np.minimum(doubled, few))
    return np.where(np.isinf(atoms), np.inf, found)[()]


def schatten_rank(
    log_schatten_norm: ArrayLike, log_resolution: ArrayLike, power: float
) -> NDArray[np.float64]:
    """r = ⌈(2B_p/x)^p⌉ − 1: without its r largest singular values a matrix has norm ≤ x/2

    because (r + 1)σ_{r+1}^p ≤ B_p^p. ∞ above e^600.

    >>> float(schatten_rank(math.log(1.0), math.log(0.25), power=1.0))
    7.0
    """
    log_ratio = power * (LOG_2 + np.subtract(log_schatten_norm, log_resolution, dtype=np.float64))
    rank = np.ceil(np.exp(np.minimum(log_ratio, _LARGEST)) * (1 - _ROUNDING)) - 1
    return np.where(log_ratio > _LARGEST, np.inf, np.maximum(rank, 0.0))


def rank_cover(
    rank: ArrayLike, sides: ArrayLike, log_norm: ArrayLike, log_resolution: ArrayLike
) -> Any:
    """log N = r(d₁ + d₂)·log(1 + 4B/x) for matrices of rank r, ‖W‖ ≤ B, inside

    W = UVᵀ with ‖U‖, ‖V‖ ≤ √B, each covered inside its ball at x/(2√B): products stay in ‖W‖ ≤ B
    and move by at most 2·√B·x/(2√B).

    Args:
        rank: r.
        sides: d₁ + d₂.

    >>> round(float(rank_cover(2, 16, math.log(0.5), math.log(0.1))), 9)        # 32 log 21
    97.424718007
    """
    ratio = np.subtract(log_norm, log_resolution, dtype=np.float64)
    return np.asarray(rank) * np.asarray(sides, dtype=np.float64) * np.logaddexp(0.0, LOG_4 + ratio)


def schatten_cover(
    rows: ArrayLike,
    columns: ArrayLike,
    log_norm: ArrayLike,
    log_schatten_norm: ArrayLike,
    log_resolution: ArrayLike,
    power: float,
) -> Any:
    """log N = r(d₁ + d₂)·log(1 + 8B/x), r of `schatten_rank`, for ‖W‖_{S_p} ≤ B_p and ‖W‖ ≤ B

    The matrix without its small singular values, x/2 away, by `rank_cover` at x/2. Outside the
    Schatten ball, but inside the spectral one. `count_cover` where that is less.

    >>> sizes = 32, 32, math.log(0.5), math.log(1.0)
    >>> round(float(schatten_cover(*sizes, math.log(0.25), power=1.0)), 9)      # 7·64 log 17
    1269.279578137
    """
    rows, columns = np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)
    rank = schatten_rank(log_schatten_norm, log_resolution, power)
    low = rank < np.minimum(rows, columns)
    half = np.subtract(log_resolution, LOG_2, dtype=np.float64)
    truncated = rank_cover(np.where(low, rank, 0.0), rows + columns, log_norm, half)
    counted = count_cover(rows * columns, log_norm, log_resolution)
    return np.where(low, np.minimum(truncated, counted), counted)[()]


IN_SPECTRAL_NORM = "distances between matrices are spectral norms"
INSIDE = "the cover consists of matrices of the class"
OUTSIDE = "the cover may leave the class; at half the resolution it gives one inside"


class MatrixCovering(Bound):
    """What the three share: d₁ × d₂ matrices and a resolution; whatever the sample is.

    Args:
        rows, columns: d₁ and d₂.
        resolution: x, in spectral norm.
    """

    quantity = "log covering number"

    rows: int = fields.width_or_own()
    columns: int = fields.width_or_own()

    def covered(self, sample: Sample, log_number: float, name: str, *notes: str) -> BoundValue:
        """log N, which is all due to one matrix."""
        log_value = log_of(log_number)
        term = Term(name, None, "W", log_value, 1.0)
        return self.value(sample, log_value, (term,), notes=notes)


class CountCovering(MatrixCovering):
    """log N ≤ D·log(1 + 2B/x) for ‖W‖ ≤ B, D = d₁d₂, inside: `count_cover`

    >>> value = CountCovering(8, 8, weight_norm=1.0, resolution=0.1).evaluate(Sample(1, 1))
    >>> round(value.value, 9)
    194.849436014
    """

    name = "F-cover-count"
    title = "a cover of matrices, by their parameters"
    statement = "log N ≤ P·log(1 + 2B_W/ε) for matrices of spectral norm B_W, whatever T is"
    citation = "Covers without T (count), finetti"
    assumes = (IN_SPECTRAL_NORM, INSIDE)

    weight_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        logs = log_of(self.weight_norm), math.log(self.resolution)
        found = count_cover(self.rows * self.columns, *logs)
        return self.covered(sample, float(found), "count")


class MaureyCovering(MatrixCovering):
    """log N ≤ log C(2D + k, k), k = ⌈B₁²/x²⌉, for Σ|w_ij| ≤ B₁, outside: `maurey_cover`

    >>> value = MaureyCovering(8, 8, entry_norm=2.0, resolution=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 9), value.notes
    (47.980200431, ('An average of 16 atoms is near enough.',))
    """

    name = "F-cover-maurey"
    title = "a cover of matrices, by the sum of their entries"
    statement = "log N for entries whose sum is B_1: ⌈(B_1/ε)²⌉ of 2P + 1 atoms, whatever T is"
    citation = "Covers without T (Maurey), finetti"
    assumes = (IN_SPECTRAL_NORM, OUTSIDE)

    entry_norm: float = fields.norm(1.0)
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        logs = log_of(self.entry_norm), math.log(self.resolution)
        found = float(maurey_cover(self.rows * self.columns, *logs))
        note = f"An average of {float(maurey_atoms(*logs)):.15g} atoms is near enough."
        return self.covered(sample, found, "Maurey", note)


class SchattenCovering(MatrixCovering):
    """log N ≤ r(d₁ + d₂)·log(1 + 8B/x), r = ⌈(2B_p/x)^p⌉ − 1, outside: `schatten_cover`

    Args:
        weight_norm: B ≥ ‖W‖.
        schatten_norm: B_p ≥ (Σ σ_i^p)^{1/p}.
        power: p: 2, 1, 0.5 or 0.25.

    >>> bound = SchattenCovering(32, 32, weight_norm=0.5, schatten_norm=1.0, resolution=0.25)
    >>> round(bound.evaluate(Sample(1, 1)).value, 9)
    1269.279578137
    """

    name = "F-cover-schatten"
    title = "a cover of matrices, by their singular values"
    statement = "log N for a Schatten norm B_S: few ranks at log(1 + 8B_W/ε) each, whatever T is"
    citation = "Covers without T (Schatten), finetti"
    assumes = (IN_SPECTRAL_NORM, f"{OUTSIDE}; it never leaves the spectral ball")

    weight_norm: float = fields.norm(1.0)
    schatten_norm: float = fields.norm(1.0, like="weight_norm")
    power: float = fields.setting(1.0, real("2, 1, 0.5 or 0.25", lambda p: p in POWERS))
    resolution: float = fields.resolution()

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_x, log_schatten = math.log(self.resolution), log_of(self.schatten_norm)
        sizes = self.rows, self.columns, log_of(self.weight_norm)
        found = float(schatten_cover(*sizes, log_schatten, log_x, self.power))
        rank = float(schatten_rank(log_schatten, log_x, self.power))
        note = f"Singular values after the first {rank:.15g} are too small to matter."
        if found == float(count_cover(self.rows * self.columns, sizes[2], log_x)):
            note = "All parameters are counted: to cut singular values off saves nothing."
        return self.covered(sample, found, "Schatten", note)
