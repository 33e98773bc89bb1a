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

from finetti.core.logspace import log1pexp, log_binomial

LOG_2, LOG_4 = math.log(2), math.log(4)
POWERS = (2.0, 1.0, 0.5, 0.25)  # of the Schatten norms: Frobenius, nuclear, and two quasi-norms
# e^(log a) misses a whole number by rounding; without this, ⌈16.000000000000004⌉ would be 17.
_ROUNDING = 1e-12
_LARGEST = 600.0  # more atoms than e^600 are never fewer than parameters


def count_cover(parameters: ArrayLike, log_norm: ArrayLike, log_resolution: ArrayLike) -> Any:
    """log N = D·log(1 + 2B/x), inside: a ball of radius B in any norm on R^D

    A largest set of members that are more than x apart is a cover; balls of radius x/2 around them
    are disjoint and lie in the ball of radius B + x/2. For matrices (‖W‖ ≤ B), for tables in the
    norm of their longest row, and for vectors in any norm.

    >>> round(float(count_cover(64, math.log(1.0), math.log(0.1))), 9)
    194.849436014
    """
    ratio = np.subtract(log_norm, log_resolution, dtype=np.float64)
    return np.asarray(parameters, dtype=np.float64) * log1pexp(LOG_2 + ratio)


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
    return np.asarray(rank) * np.asarray(sides, dtype=np.float64) * log1pexp(LOG_4 + ratio)


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
    Schatten ball, but inside the spectral one. Where r ≥ min(d₁, d₂): `count_cover`.

    >>> sizes = 8, 8, math.log(0.5), math.log(1.0)
    >>> round(float(schatten_cover(*sizes, math.log(0.25), power=1.0)), 9)
    317.319894534
    """
    rows, columns = np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)
    rank = schatten_rank(log_schatten_norm, log_resolution, power)
    low = rank < np.minimum(rows, columns)
    half = np.subtract(log_resolution, LOG_2, dtype=np.float64)
    truncated = rank_cover(np.where(low, rank, 0.0), rows + columns, log_norm, half)
    return np.where(low, truncated, count_cover(rows * columns, log_norm, log_resolution))[()]
