"""How far the leading directions of a matrix turned."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, subspace_angles

from finetti.core.numerics.extremes import largest_of

Matrix = NDArray[np.float64]


def leading_angle(new: Matrix, old: Matrix) -> float:
    """The largest angle, in degrees, between the leading singular subspaces of two matrices.

    Both have as many directions as ``old`` has stable rank, ‖W₀‖_F²/‖W₀‖² rounded: those that carry
    most of the matrix. The larger one of the angles on the two sides (inputs and outputs) counts.

    >>> turned = np.array([[0.0, 1.0], [0.0, 0.0]])
    >>> [round(leading_angle(turned, each), 6) for each in (np.diag([1.0, 0.1]), turned)]
    [90.0, 0.0]
    """
    square = float(np.linalg.norm(old, 2)) ** 2
    count = max(1, round(float(np.vdot(old, old)) / square))
    first, second = (_leading(each, count) for each in (new, old))
    angles = (subspace_angles(*pair).max() for pair in zip(first, second, strict=True))
    return math.degrees(largest_of(angles))


def _leading(matrix: Matrix, count: int) -> tuple[Matrix, Matrix]:
    """Orthonormal bases of the leading singular vectors on both sides."""
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    side = tall.shape[1]
    near = eigh(tall.T @ tall, subset_by_index=[side - count, side - 1])[1]
    far = np.linalg.qr(tall @ near)[0]
    return (far, near) if tall is matrix else (near, far)
