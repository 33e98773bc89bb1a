"""All singular values of a matrix, without vectors, and by its Gram matrix where that will do."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

from finetti.core.numerics.extremes import largest_of

Matrix = NDArray[np.float64]
SMALL = 128  # sides below which a decomposition costs nothing
POWERS = (2.0, 1.0, 0.5, 0.25)  # of the Schatten norms that are asked for
ERROR = 1e-10  # of every norm


def singular_values(tall: Matrix, gram: Matrix) -> Matrix:
    """σ of a matrix with at least as many rows as columns, the largest first; ``gram`` is AᵀA.

    Eigenvalues σ² of the Gram matrix have errors of up to about 4√side·u·σ₁² (measured; twice that
    is η here), so (Σσ^p)^{1/p} has one of ½η·Σσ^{p−2}/Σσ^p relative to itself. Where that is below
    1e-10 for every p they are taken, which is several times as fast; else the matrix itself is
    decomposed, after QR where it is tall. An estimate, not a proof: only ‖M‖ is certified.
    """
    length, side = tall.shape
    if side >= SMALL:
        squares = eigvalsh(gram)[::-1]
        slack = 8 * np.sqrt(side) * 2.0**-53 * squares[0]
        if squares[-1] > slack and _error(np.sqrt(squares), slack) < ERROR:
            return np.sqrt(squares)
    if length > 1.5 * side >= 1.5 * SMALL:
        tall = np.asarray(np.linalg.qr(tall, mode="r"))
    return np.linalg.svd(tall, compute_uv=False).astype(np.float64, copy=False)


def _error(values: Matrix, slack: float) -> float:
    return largest_of(
        slack / 2 * float((values ** (p - 2)).sum() / (values**p).sum()) for p in POWERS
    )
