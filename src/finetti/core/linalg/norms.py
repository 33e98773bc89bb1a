"""Norms of matrices and of token sequences, for NumPy and JAX arrays alike (edelman2022, 2).

``‖M‖_{p,q}``: p-norm of every COLUMN, then the q-norm of those.
"""

import math
from typing import Any

import numpy as np

from finetti.core.arguments import as_exponent, check_finite, check_rank
from finetti.core.arrays import namespace
from finetti.core.errors import bad_argument


def _real_array(array: Any, shape: str, argument: str, owner: str) -> Any:
    """``array`` with float32 or float64 entries, checked: two axes or more, not empty, finite."""
    xp = namespace(array)
    array = xp.asarray(array)
    check_rank(array, 2, shape, argument, owner)
    if array.size == 0:
        raise bad_argument(argument, owner, "an array with entries", f"shape {array.shape}")
    if array.dtype.kind == "c":
        raise bad_argument(argument, owner, "real", f"dtype {array.dtype}")
    if array.dtype.name not in ("float32", "float64"):
        # Half precision has too few digits for a sum of many powers, integers have none.
        array = array.astype(float)
    check_finite(array, argument, owner)
    return array


def _vector_norm(array: Any, p: float, axis: int) -> Any:
    """The p-norm along ``axis``: no overflow for large p, gradient 0 (a subgradient) at 0."""
    xp = namespace(array)
    size = xp.abs(array)
    if p == math.inf:
        return size.max(axis=axis)
    if p == 1:
        return size.sum(axis=axis)
    top = size.max(axis=axis, keepdims=True)
    scale = xp.where(top > 0, top, 1.0)
    size /= scale  # in place in NumPy, where these may be all weights of a network
    size **= p
    total = size.sum(axis=axis)
    zero = total == 0  # where the derivative of the root would be infinite
    root = xp.where(zero, 1.0, total) ** (1 / p)
    return xp.where(zero, 0.0, root * scale.squeeze(axis))


def column_norms(matrix: Any, p: float = 2) -> Any:
    """The p-norm of every column: (…, rows, columns) → (…, columns).

    >>> column_norms([[3.0, 0.0], [4.0, 1.0]])
    array([5., 1.])
    """
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "column_norms")
    return _vector_norm(matrix, as_exponent(p, "p", "column_norms"), axis=-2)


def norm_pq(matrix: Any, p: float, q: float) -> Any:
    """The (p,q) norm ``‖M‖_{p,q} = (Σ_j ‖M_{:,j}‖_p^q)^{1/q}`` of (…, rows, columns).

    Leading axes are a batch. ``p`` and ``q`` are in [1, ∞], with ``math.inf`` for ∞.

    >>> float(norm_pq([[3.0, 0.0], [4.0, 1.0]], 2, 1))
    6.0
    """
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "norm_pq")
    p, q = as_exponent(p, "p", "norm_pq"), as_exponent(q, "q", "norm_pq")
    return _vector_norm(_vector_norm(matrix, p, axis=-2), q, axis=-1)


def sequence_norm(tokens: Any, r: float = 2) -> Any:
    """The largest token of a sequence: ``‖X‖_{r,∞} = max_ℓ ‖x_ℓ‖_r`` for tokens (…, L, d).

    Equal to ``norm_pq(X^⊤, r, ∞)``: tokens are rows here.

    >>> float(sequence_norm([[3.0, 4.0], [1.0, 1.0], [0.0, 2.0]]))
    5.0
    """
    tokens = _real_array(tokens, "(…, L, d)", "tokens", "sequence_norm")
    return _vector_norm(tokens, as_exponent(r, "r", "sequence_norm"), axis=-1).max(axis=-1)


def frobenius(matrix: Any) -> Any:
    """The Frobenius norm ``(Σ_ij M_ij²)^{1/2}`` of (…, rows, columns)."""
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "frobenius")
    return _vector_norm(matrix.reshape(*matrix.shape[:-2], -1), 2, axis=-1)


def spectral(matrix: Any) -> Any:
    """The largest singular value of (…, rows, columns), ``‖M‖`` in the papers."""
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "spectral")
    if namespace(matrix) is np:
        return np.linalg.svd(matrix, compute_uv=False)[..., 0]
    from finetti.core.linalg.lapack import singular_values

    return singular_values(matrix)[..., 0]


def max_column_norm(matrix: Any, p: float = 2) -> Any:
    """The largest column norm: B_V^∞ of W_V and B_C^∞ of W_C (edelman2022, erratum 9)."""
    return column_norms(matrix, p).max(axis=-1)


def max_row_norm(matrix: Any, p: float = 2) -> Any:
    """The largest row norm: B_QK^∞ of W_Q W_K^⊤ (edelman2022, erratum 9)."""
    matrix = _real_array(matrix, "(…, rows, columns)", "matrix", "max_row_norm")
    return _vector_norm(matrix, as_exponent(p, "p", "max_row_norm"), axis=-1).max(axis=-1)


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
