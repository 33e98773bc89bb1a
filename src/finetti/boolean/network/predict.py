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
    single = np.dtype(dtype) == np.float32
    tables = head.tables32 if single else head.tables
    network = lookup.single if single else lookup
    length = head.context_length
    if hasattr(bits, "tocsr"):
        if len(bits.shape) != 2 or bits.shape[1] != length:
            raise bad_argument("bits", "predict", f"of shape (m, {length})", f"shape {bits.shape}")
        rows = bits.tocsr()
        binary_array(rows.data, "predict")
        return network(tables.read_sparse(rows))
    array = binary_array(bits, "predict")
    if array.ndim not in (1, 2) or array.shape[-1] != length:
        raise bad_argument("bits", "predict", f"of shape (m, {length})", f"shape {array.shape}")
    return network(tables.read(array.reshape(-1, length))).reshape(array.shape[:-1])
