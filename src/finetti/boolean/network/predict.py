"""Runs batches of bit strings, dense or sparse, of any length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.functions.base import binary_array
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.core.errors import bad_argument


def predict(head: HeadWeights, lookup: Lookup, bits: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """The network's value at every row.

    Args:
        head, lookup: the network.
        bits: zeros and ones, shape (m, T) or (T,), of any dtype; uint8 or bool need no copy. Or a
            SciPy sparse matrix or array of that shape, whose cost is its number of ones.
        dtype: np.float64, or np.float32 for the precision of a float32 network.
    """
    single = is_single(dtype, "predict")
    tables = head.tables32 if single else head.tables
    network = lookup.single if single else lookup
    rows = as_rows(bits, head.context_length, "predict")
    if not isinstance(rows, np.ndarray):
        return network(tables.read_sparse(rows))
    flat = rows.reshape(-1, head.context_length)
    return network(tables.read(flat)).reshape(rows.shape[:-1])


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
