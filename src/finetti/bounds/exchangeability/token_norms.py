"""The two norms of a matrix that paper E's bounds are made of. Needs no JAX."""

from typing import Any

import numpy as np

from finetti.core.norms import frobenius, spectral
from finetti.core.numbers import smallest_of


def matrix_norms(weights: Any) -> tuple[float, float]:
    """ω and R of a matrix that acts on tokens, x ↦ xW: its spectral and its Frobenius norm.

    ‖xW‖ ≤ ω‖x‖, and ω ≤ R.

    >>> matrix_norms([[3.0, 0.0], [0.0, 4.0]])
    (4.0, 5.0)
    """
    matrix = np.asarray(weights, dtype=np.float64)
    size = float(frobenius(matrix))
    return smallest_of(float(spectral(matrix)), size), size
