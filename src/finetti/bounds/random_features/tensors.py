"""The norm of a tensor that a polynomial does not see: its antisymmetric part left out."""

import math
from typing import Any

import numpy as np

from finetti.core.arrays import check_finite
from finetti.core.errors import bad_argument


def squared_norms(tensor: Any, query_degree: int) -> tuple[float, float]:
    """``log ‖f‖²`` and ``log ‖Sym f‖²`` for f_rs with d^{r+s} entries, the x₀ slots first.

    ⟨f, x₀^{⊗r} ⊗ x^{⊗s}⟩ only sees f symmetrized over its x₀ slots and, separately, over its x
    slots: entries whose indices are permutations of each other count through their mean.

    Args:
        tensor: shape (d, …, d) with r + s axes.
        query_degree: r, the number of x₀ slots.

    >>> import numpy as np
    >>> full, symmetric = squared_norms(np.array([[0.0, 1.0], [0.0, 0.0]]), 0)  # x₁x₂
    >>> round(float(np.exp(full)), 12), round(float(np.exp(symmetric)), 12)
    (1.0, 0.5)
    """
    owner = "squared_norms"
    array = np.asarray(tensor, dtype=np.float64)
    if len(set(array.shape)) > 1 or array.size == 0:
        raise bad_argument("tensor", owner, "of shape (d, …, d)", f"shape {array.shape}")
    if not 0 <= query_degree <= array.ndim:
        raise bad_argument("query_degree", owner, f"in [0, {array.ndim}]", query_degree)
    check_finite(array, "tensor", owner)
    top = float(np.abs(array).max())
    if top == 0:
        return -math.inf, -math.inf
    # A power of two changes no digit, and then no square overflows.
    scale = math.ldexp(1.0, math.frexp(top)[1])
    entries = (array / scale).ravel()
    if array.ndim < 2:
        square = float(np.sum(entries**2))
        log_square = math.log(square) + 2 * math.log(scale)
        return log_square, log_square
    indices = np.indices(array.shape).reshape(array.ndim, -1)
    slots = np.vstack(
        [np.sort(indices[:query_degree], axis=0), np.sort(indices[query_degree:], axis=0)]
    )
    classes = np.ravel_multi_index(tuple(slots), array.shape)
    totals = np.bincount(classes, weights=entries, minlength=array.size)
    members = np.bincount(classes, minlength=array.size)
    symmetric = float(np.sum(totals**2 / np.maximum(members, 1)))
    shift = 2 * math.log(scale)
    log_symmetric = math.log(symmetric) + shift if symmetric > 0 else -math.inf
    return math.log(float(np.sum(entries**2))) + shift, log_symmetric
