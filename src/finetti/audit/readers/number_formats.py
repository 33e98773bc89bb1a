"""How numbers are stored in files, by the names of safetensors, and what they are as float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError

# What raw bytes are looked at as; little-endian, as the format demands.
STORED = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "F8_E4M3": "|u1",
    "F8_E5M2": "|u1",
}
# By how much of itself a (normal) number may move when it is stored.
ROUNDING = {
    "F64": 2.0**-53,
    "F32": 2.0**-24,
    "F16": 2.0**-11,
    "BF16": 2.0**-8,
    "F8_E4M3": 2.0**-4,
    "F8_E5M2": 2.0**-3,
}
# Weights of these types are codes of a quantizer: without its tables they are no numbers.
WHOLE = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
}


def item_size(kind: str, owner: str) -> int:
    """Bytes of one number, for types that are known."""
    stored = STORED.get(kind) or WHOLE.get(kind)
    if stored is None:
        known = ", ".join((*STORED, *WHOLE))
        raise InputError(f"{owner} has numbers of the unknown type {kind[:40]!r}. Known: {known}.")
    return np.dtype(stored).itemsize


def decode(raw: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """Stored numbers as float64, exactly.

    >>> decode(np.array([0x3FC0], "<u2"), "BF16"), decode(np.array([0x38, 0x7E], "u1"), "F8_E4M3")
    (array([1.5]), array([  1., 448.]))
    """
    if kind == "BF16":  # the upper half of a float32
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "F8_E5M2":  # the upper half of a float16
        return (raw.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    if kind == "F8_E4M3":
        return _E4M3[raw]
    return raw.astype(np.float64)


def _table_e4m3() -> NDArray[np.float64]:
    """All 256 values: bias 7, no infinities, NaN where all bits but the sign are set."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    size = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    values = np.where(codes & 128, -size, size)
    values[[0x7F, 0xFF]] = np.nan
    return values


_E4M3 = _table_e4m3()
