"""Integrals over the unit sphere: the constants that tie softmax attention to a density."""

import sys
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, hyp0f1, ive, roots_gegenbauer

from finetti.core.arguments import check_positive
from finetti.core.errors import bad_argument

_RECURRENCE_STEPS = 100


class SphereConstants(NamedTuple):
    """C_0 = ∫ exp(κaᵀb) da and C_1 = ∫ aᵀb exp(κaᵀb) da over a ∈ S^{d−1}, any unit b."""

    c0: float
    c1: float


def sphere_constants(dimension: int, concentration: float = 1.0) -> SphereConstants:
    """The constants of Lemma B.2 in closed form.

    C_0 = (2π)^{d/2} κ^{1−d/2} I_{d/2−1}(κ),  C_1 = (2π)^{d/2} κ^{1−d/2} I_{d/2}(κ)

    Args:
        dimension: d ≥ 2 of the values; the sphere is S^{d−1}.
        concentration: κ; 1 in the paper.

    >>> c0, c1 = sphere_constants(3)
    >>> f"{c0 / c1:.3f}"  # a density-normalized value kernel needs this factor (erratum 4)
    '3.195'

    Reference: Lemma B.2, zhang2022.
    """
    owner = "sphere_constants"
    _check_dimension(dimension, owner)
    check_positive(concentration, "concentration", owner)
    zeroth, first, log_front = _scaled_constants(dimension, concentration)
    with np.errstate(over="ignore"):
        front = np.exp(log_front)
    if not np.isfinite(front):
        requirement = "small enough for float64 to hold exp(κ)"
        advice = "Use mean_resultant for the ratio C_1/C_0."
        raise bad_argument("concentration", owner, requirement, concentration, advice)
    return SphereConstants(float(front * zeroth), float(front * first))


def _scaled_constants(dimension: int, concentration: float) -> tuple[float, float, float]:
    """C_0 and C_1 up to a common factor, and the logarithm of that factor."""
    order = dimension / 2
    if concentration <= order:
        # I_ν underflows for large orders; the series without its leading power does not.
        square = concentration**2 / 4
        zeroth = hyp0f1(order, square)
        first = concentration / dimension * hyp0f1(order + 1, square)
        return zeroth, first, np.log(2) + order * np.log(np.pi) - gammaln(order)
    # ive carries exp(−κ), which the factor puts back.
    log_front = order * np.log(2 * np.pi) + (1 - order) * np.log(concentration) + concentration
    return ive(order - 1, concentration), ive(order, concentration), log_front


def mean_resultant(dimension: int, concentration: float = 1.0) -> float:
    """A_d(κ) = I_{d/2}(κ) / I_{d/2−1}(κ): how much a kernel smoother shrinks a linear function.

    With keys uniform on S^{d−1} and E[V | K = k] = Mk, softmax attention tends to A_d(κ)·Mq.

    >>> f"{mean_resultant(5):.5f}"
    '0.19453'

    Reference: Proposition 4.2 and its caveat (erratum 4), zhang2022.
    """
    _check_dimension(dimension, "mean_resultant")
    check_positive(concentration, "concentration", "mean_resultant")
    order = dimension / 2 - 1
    zeroth, first = ive(order, concentration), ive(order + 1, concentration)
    if concentration > order and first > sys.float_info.min:
        return float(first / zeroth)
    # Where they underflow, from Amos' bound at a larger order down by the recurrence of the ratios,
    # which divides the error by the square of each.
    last = order + _RECURRENCE_STEPS
    ratio = concentration / (last + 0.5 + np.hypot(last + 1.5, concentration))
    for step in range(_RECURRENCE_STEPS, 0, -1):
        ratio = concentration / (2 * (order + step) + concentration * ratio)
    return float(ratio)


def sphere_rule(dimension: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (P, d) and weights (P,) that integrate polynomials of the degree over S^{d−1} exactly.

    A product rule: Gauss–Gegenbauer in the polar coordinate, the sphere one dimension lower on
    each slice, equally spaced points on the circle. P grows like (degree/2)^{d−1}: small d only.

    >>> nodes, weights = sphere_rule(3, 5)
    >>> f"{weights.sum() / np.pi:.6f}"  # the area of S² is 4π
    '4.000000'
    """
    _check_dimension(dimension, "sphere_rule")
    if degree < 0:
        raise bad_argument("degree", "sphere_rule", "an integer ≥ 0", degree)
    if dimension == 2:
        count = degree + 1
        angles = 2 * np.pi * np.arange(count) / count
        nodes = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return nodes, np.full(count, 2 * np.pi / count)
    heights, height_weights = roots_gegenbauer(degree // 2 + 1, (dimension - 2) / 2)
    # The Gegenbauer weight (1−t²)^{(d−3)/2} is exactly the sphere's; rescale against rounding.
    area_ratio = np.exp(0.5 * np.log(np.pi) + gammaln((dimension - 1) / 2) - gammaln(dimension / 2))
    height_weights = height_weights * (area_ratio / height_weights.sum())
    ring, ring_weights = sphere_rule(dimension - 1, degree)
    radius = np.sqrt(1 - heights**2)
    around = np.repeat(radius, len(ring))[:, None] * np.tile(ring, (len(heights), 1))
    nodes = np.concatenate([np.repeat(heights, len(ring))[:, None], around], axis=1)
    return nodes, np.outer(height_weights, ring_weights).ravel()


def _check_dimension(dimension: int, owner: str) -> None:
    if dimension != int(dimension) or dimension < 2:
        raise bad_argument("dimension", owner, "an integer ≥ 2", dimension)
