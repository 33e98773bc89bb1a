"""Bits as users give them: rows, dense or sparse, of any length."""

from typing import Any

import numpy as np

from finetti.boolean.functions.base import binary_array
from finetti.core.errors import bad_argument


def is_single(dtype: Any, owner: str) -> bool:
    """Whether a precision is float32; it must be that or float64.

    >>> is_single(int, "predict")
    Traceback (most recent call last):
    finetti.core.errors.InputError: The `dtype` argument of predict must be float32 or float64. ...
    """
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in ("float32", "float64"):
        raise bad_argument("dtype", owner, "float32 or float64", name)
    return name == "float32"


def as_rows(bits: Any, length: int, owner: str) -> Any:
    """Bits of shape (m, T) or (T,) as an array, or in CSR form where they are sparse, checked."""
    if hasattr(bits, "tocsr"):
        if len(bits.shape) != 2 or bits.shape[1] != length:
            raise bad_argument("bits", owner, f"of shape (m, {length})", f"shape {bits.shape}")
        rows = bits.tocsr()
        if not rows.has_canonical_format:  # one entry may be written as a sum of several
            rows = rows.copy()
            rows.sum_duplicates()
        binary_array(rows.data, owner)
        return rows
    array = binary_array(bits, owner)
    if array.ndim not in (1, 2) or array.shape[-1] != length:
        raise bad_argument("bits", owner, f"of shape (m, {length})", f"shape {array.shape}")
    return array
