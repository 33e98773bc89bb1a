"""The spectral norm between two values that rounding cannot leave.

All errors are bounded a priori by γ_n = nu/(1−nu), u = 2⁻⁵³ (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., lemma 3.1), with the dimensions doubled so that the rounding of the
bounds themselves is covered as well.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh

from finetti.core.numerics.extremes import largest_of, smallest_of

Matrix = NDArray[np.float64]
UNIT = 2.0**-53


def gamma(count: int) -> float:
    """γ of twice ``count`` operations: the room that rounding may take."""
    return 2 * count * UNIT / (1 - 2 * count * UNIT)


def frobenius_upper(matrix: Matrix) -> float:
    """Return an upper value of the Frobenius norm of a matrix with entries near 1."""
    flat = matrix.ravel(order="K")  # in whichever order it lies there, without a copy
    return math.sqrt(float(flat @ flat) * (1 + gamma(matrix.size + 2)))


def certified_spectral(tall: Matrix, gram: Matrix, guess: float) -> tuple[float, float]:
    """``lower ≤ ‖M‖ ≤ upper`` for a matrix with entries of at most about 1, and its MᵀM.

    Lower: ‖Mv‖/‖v‖ of one vector. Upper: if Cholesky's factorization of t²I − MᵀM runs to its end,
    no eigenvalue of MᵀM exceeds t² by more than the rounding of all steps, γ·tr(t²I − MᵀM) (S. M.
    Rump, "Verification of positive definiteness", BIT 46 (2006)). ``guess`` is where t begins.

    >>> matrix = np.array([[3.0, 0.0], [4.0, 5.0]]) / 5
    >>> lower, upper = certified_spectral(matrix, matrix.T @ matrix, math.sqrt(1.8))
    >>> lower <= math.sqrt(1.8) <= upper, upper - lower < 1e-13
    (True, True)
    """
    length, side = tall.shape
    total = frobenius_upper(tall)
    _, vectors = eigh(gram, subset_by_index=[side - 1, side - 1])
    vector = vectors[:, 0]
    reached = float(np.linalg.norm(tall @ vector) / np.linalg.norm(vector))
    lower = largest_of(
        0.0, (reached - gamma(length + side + 4) * total) * (1 - gamma(length + side))
    )
    step = 4 * side * UNIT
    while guess * (1 + step) < total:
        shifted = -gram
        square = (guess * (1 + step)) ** 2
        shifted[np.diag_indices(side)] += square
        if _positive(shifted):
            room = gamma(side + 4) * side * square + gamma(length + 2) * total**2
            return lower, smallest_of(total, math.sqrt(square + room) * (1 + 8 * UNIT))
        step *= 8
    return lower, total


def _positive(matrix: Matrix) -> bool:
    """Return whether the factorization runs to its end."""
    try:
        cholesky(matrix, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return False
    return True


def factor_error(factor: Matrix, triangle: Matrix) -> float:
    """ε with ``AAᵀ ≤ RᵀR + εI`` and ``RᵀR ≤ AAᵀ + εI``, for A (k, d) and any R (…, k)."""
    difference = triangle.T @ triangle - factor @ factor.T
    sizes = frobenius_upper(factor) ** 2 + frobenius_upper(triangle) ** 2
    return frobenius_upper(difference) + gamma(sum(factor.shape) + triangle.shape[0]) * sizes


def certified_product(
    left: Matrix, right: Matrix, r_left: Matrix, r_right: Matrix, core: Matrix, guess: float
) -> tuple[float, float]:
    """``lower ≤ ‖AᵀB‖ ≤ upper`` from the small core ``R_A R_Bᵀ`` of thin factors (k, d).

    AAᵀ ≤ R_AᵀR_A + ε_A and the same for B give ‖AᵀB‖² ≤ ‖R_A R_Bᵀ‖² + ε_A‖B‖² + ε_B‖R_A‖², and in
    the other direction ‖R_A R_Bᵀ‖² ≤ ‖AᵀB‖² + ε_A‖R_B‖² + ε_B‖A‖². The ε are measured.
    """
    low, high = certified_spectral(core, core.T @ core, guess)
    e_left, e_right = factor_error(left, r_left), factor_error(right, r_right)
    sizes = {name: frobenius_upper(each) for name, each in (("A", left), ("B", right))}
    small = {name: frobenius_upper(each) for name, each in (("A", r_left), ("B", r_right))}
    rounding = gamma(core.shape[0] + 2) * small["A"] * small["B"]
    above = (high + rounding) ** 2 + e_left * sizes["B"] ** 2 + e_right * small["A"] ** 2
    below = (
        largest_of(0.0, low - rounding) ** 2 - e_left * small["B"] ** 2 - e_right * sizes["A"] ** 2
    )
    upper = smallest_of(math.sqrt(above), sizes["A"] * sizes["B"])
    return math.sqrt(largest_of(0.0, below)) * (1 - 8 * UNIT), upper * (1 + 8 * UNIT)
