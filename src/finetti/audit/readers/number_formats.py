"""How numbers are stored, by the names of safetensors, and the NumPy types that they are."""

from typing import Any

import ml_dtypes
import numpy as np

# Little-endian, as the format demands.
REAL: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
# Weights of these types are codes of a quantizer: without its tables they are no numbers.
WHOLE: dict[str, np.dtype[Any]] = {"BOOL": np.dtype("?")} | {
    f"{letter.upper()}{bits}": np.dtype(f"<{letter}{bits // 8}")
    for letter in "ui"
    for bits in (8, 16, 32, 64)
}
_KINDS = {dtype.name: kind for kind, dtype in (REAL | WHOLE).items()}


def kind_of(dtype: str) -> str:
    """Return the kind that a type of NumPy, JAX or PyTorch is stored as; others keep their name.

    >>> kind_of("float32"), kind_of("bfloat16"), kind_of("complex64")
    ('F32', 'BF16', 'complex64')
    """
    return _KINDS.get(dtype, dtype)


def unit_roundoff(kind: str) -> float:
    """Return by how much of itself a (normal) number may move when it is stored.

    >>> unit_roundoff("F32") == 2**-24, unit_roundoff("BF16") == 2**-8
    (True, True)
    """
    return float(ml_dtypes.finfo(REAL[kind]).eps) / 2
