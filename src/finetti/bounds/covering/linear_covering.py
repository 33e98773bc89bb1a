"""Covering numbers of linear functions: Lemma A.10, Lemma 4.5 and its (2,1) refinement.

Everything is in log space: arguments are logarithms of norms, of the resolution and of the number
of points covered, and results are log log N_∞. With ``smooth=True`` ⌈a⌉ is replaced by the larger
a + 1, for integrals and root finding.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from finetti.core.numerics.logspace import log_add, log_binomial

LOG_36, LOG_4, LOG_2 = math.log(36), math.log(4), math.log(2)
# e^(log a) misses a whole number by rounding; without this, ⌈40.000000000000004⌉ would be 41.
_ROUNDING = 1e-12


def log_points_factor(
    log_ratio: NDArray[np.float64] | float,
    log_points: NDArray[np.float64] | float,
    smooth: bool = False,
) -> NDArray[np.float64]:
    """log( log( 2⌈a + 2⌉N + 1 ) ) for log a and log N: what one ball in R^d costs per 36(BB'/ε)².

    >>> factor = np.exp(log_points_factor(math.log(40), math.log(1e4)))
    >>> abs(float(factor) / math.log(840_001) - 1) < 1e-14
    True
    """
    log_ratio = np.asarray(log_ratio, dtype=np.float64)
    small = np.minimum(log_ratio, 40.0)  # beyond, neither the ceiling nor the 2 is seen
    ratio = np.exp(small)
    whole = ratio + 3 if smooth else np.ceil(ratio * (1 - _ROUNDING) + 2)
    log_count = LOG_2 + np.log(whole) + np.maximum(log_ratio - 40.0, 0.0) + log_points
    return np.log(log_add(log_count, np.zeros_like(log_count)))


def log_log_linear_cover(
    log_ratio: ArrayLike, log_outputs: ArrayLike, log_points: ArrayLike, smooth: bool = False
) -> Any:
    """log log N_∞ of linear maps of d₂ columns, each covered at ε/√d₂        Lemma 4.5, edelman2022

        log N_∞ ≤ 36 (c/ε)² log(2⌈4c/(√d₂ ε) + 2⌉N + 1),   c = d₂B_∞B_X

    For d₂ = 1 it is Lemma A.10, edelman2022 (Zhang 2002, Theorem 4).

    Args:
        log_ratio: log(c/ε).
        log_outputs: log d₂.
        log_points: log N.
        smooth: as above.

    >>> round(math.exp(log_log_linear_cover(math.log(10.0), 0.0, math.log(1e4))), 6)
    49108.170101
    """
    ratio = np.asarray(log_ratio, dtype=np.float64)
    inside = LOG_4 + ratio - np.asarray(log_outputs) / 2
    return LOG_36 + 2 * ratio + log_points_factor(inside, np.asarray(log_points), smooth)


def log_log_refined_cover(
    log_total_norm: float,
    outputs: int,
    log_input: float,
    log_resolution: float,
    log_points: float,
    budget: int,
) -> float:
    """log[ log C(n+d₂, d₂) + 36(1+d₂/n)²(B₁B_X/ε)² log(2⌈4B₁B_X√((n+1)(n+d₂))/(nε) + 2⌉N + 1) ]

    The class {x ↦ Wᵀx, ‖W‖_{2,1} ≤ B₁} for any whole n = ``budget``: the columns get budgets
    K_i = ⌊n‖v_i‖/B₁⌋ + 1, radii B₁K_i/n and resolutions ε√(K_i/(n+d₂)). The repair of Lemma 4.5,
    edelman2022 (erratum 8): `RefinedMatrixCovering`.
    """
    n, d = float(budget), float(outputs)
    log_ratio = log_total_norm + log_input - log_resolution
    growth = math.log1p(d / n)
    inside = LOG_4 + log_ratio + (math.log1p(1 / n) + growth) / 2
    balls = LOG_36 + 2 * growth + 2 * log_ratio + float(log_points_factor(inside, log_points))
    counts = math.log(float(log_binomial(n + d, min(n, d))))
    return float(log_add(counts, balls))


def best_refined_cover(
    log_total_norm: float,
    outputs: int,
    log_input: float,
    log_resolution: float,
    log_points: float,
) -> tuple[float, int]:
    """The refined covering number with the best n = d₂·2^j, and that n."""
    logs = (log_input, log_resolution, log_points)
    budgets = (outputs * 2**j for j in range(60))
    return min(
        (log_log_refined_cover(log_total_norm, outputs, *logs, budget=n), n) for n in budgets
    )
