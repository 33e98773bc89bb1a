"""Covers as constructions: the member of the cover that stands for a matrix."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from finetti.bounds.ours import spectral_covers
from finetti.core.errors import bad_argument


def separated_members(members: Iterable[ArrayLike], resolution: float) -> NDArray[np.float64]:
    """Those of ``members`` that are more than x from all that were kept before: `count_cover`

    What is not kept is within x of something that is, so that they are a cover, inside.

    >>> members = np.linspace(-1, 1, 2001).reshape(-1, 1, 1)
    >>> len(separated_members(members, 0.0999))                           # of 1 + 2/x = 21.02
    21
    """
    kept: list[NDArray[np.float64]] = []
    for member in members:
        each = np.asarray(member, dtype=np.float64)
        if not kept or np.linalg.norm(np.stack(kept) - each, 2, axis=(1, 2)).min() > resolution:
            kept.append(each)
    return np.stack(kept)


def round_to_atoms(
    matrix: ArrayLike, entry_norm: float, resolution: float
) -> tuple[NDArray[np.float64], int]:
    """An average of k atoms ±B₁e_ie_jᵀ or 0 within x of ``matrix``, and k: `maurey_cover`

    Each atom is the one that brings k times the average nearest to k times the matrix: of all atoms
    in their proportions in W, the mean of ‖S − (j−1)W + a − W‖² is at most ‖S − (j−1)W‖² + B₁², so
    that the last is at most kB₁².

    >>> found, count = round_to_atoms([[0.5, -0.5], [0.25, 0.0]], 1.25, 0.7)
    >>> count, float(np.linalg.norm(found - np.array([[0.5, -0.5], [0.25, 0.0]]))) <= 0.7
    (4, True)
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if not np.abs(matrix).sum() <= entry_norm * (1 + 1e-12):
        raise bad_argument("entry_norm", "round_to_atoms", "at least Σ|w_ij|", entry_norm)
    count = int(spectral_covers.maurey_atoms(np.log(entry_norm), np.log(resolution)))
    behind = np.zeros_like(matrix)  # what the atoms so far lack
    total = np.zeros_like(matrix)
    for _ in range(count):
        behind += matrix
        where = np.unravel_index(np.abs(behind).argmax(), matrix.shape)
        atom = np.sign(behind[where]) * entry_norm
        # ‖behind − a‖² is smaller with the atom than with 0 if 2|behind| > B₁ there.
        if 2 * abs(behind[where]) > entry_norm:
            behind[where] -= atom
            total[where] += atom
    return total / count, count


def round_to_rank(
    matrix: ArrayLike, norm: float, rank: int, resolution: float
) -> NDArray[np.float64]:
    """The r largest singular values as a product of two factors of a grid: `rank_cover` at x/2

    Each factor is rounded by at most x/(4√B) and kept in the ball of radius √B, so that the product
    is within x/2 of the truncated matrix.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    roots = np.sqrt(values[:rank])
    step = resolution / (4 * np.sqrt(norm))
    factors = (left[:, :rank] * roots, right[:rank].T * roots)
    first, second = (_rounded(each, np.sqrt(norm), step) for each in factors)
    return first @ second.T


def _rounded(factor: NDArray[np.float64], norm: float, distance: float) -> NDArray[np.float64]:
    """To a grid, half of ``distance`` at most, and back into the ball, the other half."""
    if factor.size == 0:
        return factor
    step = distance / np.sqrt(factor.size)
    left, values, right = np.linalg.svd(np.round(factor / step) * step, full_matrices=False)
    return (left * np.minimum(values, norm)) @ right
