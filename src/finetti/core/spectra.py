"""What a ridge leaves of a spectrum. Needs no JAX."""

from typing import Any

import numpy as np


def spectral_dimension(eigenvalues: Any, ridge: float) -> float:
    """Γ(λ) = tr((C + λI)⁻¹C) = Σ_i s_i/(s_i + λ): how many directions a ridge leaves free.

    Args:
        eigenvalues: s_i of C, none of them negative but for rounding, which counts as 0.
        ridge: λ > 0.

    >>> spectral_dimension([1.0, 1.0, 0.0], 1.0)
    1.0

    Reference: the effective dimension of B.4, zhang2022.
    """
    spectrum = np.maximum(np.asarray(eigenvalues, np.float64), 0.0)
    return float(np.sum(spectrum / (spectrum + ridge)))
