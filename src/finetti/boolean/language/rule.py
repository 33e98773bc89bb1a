"""A function of the bits b_I of a string b ∈ {0,1}^T, whatever T is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import InputError, bad_argument
from finetti.display.formatting import plural

MAX_VALUE = 1e6  # of a rule's values, and of the ratio of two of them
MAX_SETTING_BITS = 16  # relevant bits whose settings are all run
MAX_TABLE_BITS = 22  # variables of a function that is written out as a table: 2²² numbers, 32 MB


def all_bits(n_bits: int) -> NDArray[np.uint8]:
    """All strings of ``n_bits`` bits, one per row, the first bit most significant.

    >>> all_bits(2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    rows = np.arange(2**n_bits, dtype=np.uint32)[:, None]
    shifts = np.arange(n_bits - 1, -1, -1, dtype=np.uint32)
    return ((rows >> shifts) & 1).astype(np.uint8)


def name_bits(context_length: int) -> str:
    """The bits of a context and their names.

    >>> name_bits(1), name_bits(10)
    ('1 bit, x0', '10 bits, x0 to x9')
    """
    last = f" to x{context_length - 1}" if context_length > 1 else ""
    return f"{plural(context_length, 'bit')}, x0{last}"


def as_indices(indices: Iterable[Any], owner: str) -> tuple[int, ...]:
    """Positions of bits: distinct integers, counted from 0."""
    try:
        found = tuple(index(each) for each in indices)
    except TypeError as error:
        raise bad_argument("indices", owner, "integers counted from 0", indices) from error
    if any(each < 0 for each in found) or len(set(found)) != len(found):
        raise bad_argument("indices", owner, "distinct and counted from 0", found)
    return found


def binary_array(bits: Any, owner: str, requirement: str = "zeros and ones") -> NDArray[Any]:
    """Bits as an array of real numbers that are all 0 or 1, of any shape.

    >>> binary_array(["0", "1"], "predict")
    Traceback (most recent call last):
    finetti.core.errors.InputError: The `bits` argument of predict must be zeros and ones. Got ...
    """
    try:
        array = np.asarray(bits)
    except ValueError as error:  # rows of different lengths
        raise bad_argument("bits", owner, requirement, "rows of several lengths") from error
    if array.dtype.kind not in "biuf" and array.size:
        got = f"an array of {array.dtype.name}"
        raise bad_argument("bits", owner, requirement, got)
    if array.dtype == bool or not array.size:
        return array
    # Two passes without a copy; numbers between 0 and 1 exist in floating point only.
    between = array.dtype.kind == "f" and not ((array == 0) | (array == 1)).all()
    if between or not (array.min() >= 0 and array.max() <= 1):
        raise bad_argument("bits", owner, requirement, "other values")
    return array


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


class BooleanFunction(ABC):
    """f(b) = f(b_I): depends on the bits at ``indices`` only (I-sparse, Section 4.4, edelman2022).

    Values are real numbers; a rule has the values 0 and 1.
    """

    indices: tuple[int, ...]

    @abstractmethod
    def evaluate(self, bits: NDArray[Any]) -> NDArray[np.float64]:
        """Values at the rows of ``bits``, shape (m, s): the bits at ``indices``, in that order."""

    def profile(self) -> NDArray[np.float64] | None:
        """f by the number of ones among its bits, where it is known to be symmetric without a
        table; None otherwise (`find_profile` looks at the table)."""
        return None

    def values(self) -> NDArray[np.float64]:
        """Every value that it may have, in any order."""
        return all_values(self)

    @property
    def sparsity(self) -> int:
        """s, the number of indices (those that matter: `simplify`)."""
        return len(self.indices)

    def table(self) -> NDArray[np.float64]:
        """All 2^s values, the first index most significant: rows 00, 01, 10, 11."""
        if self.sparsity > MAX_TABLE_BITS:
            raise InputError(
                f"A function of {self.sparsity} bits has a table of 2^{self.sparsity} values, and "
                f"tables end at 2^{MAX_TABLE_BITS}. Compile it with gates=True, or use a "
                "symmetric family, which needs no table."
            )
        return self.evaluate(all_bits(self.sparsity))

    def __call__(self, bits: Any) -> NDArray[np.float64]:
        """f(b) for strings of any length, shape (…, T) → (…)."""
        array = np.asarray(bits)
        top = max(self.indices, default=-1)
        if array.ndim == 0 or array.shape[-1] <= top:
            shape = f"(..., T) with T > {top}"
            raise bad_argument("bits", type(self).__name__, f"of shape {shape}", array.shape)
        rows = array.reshape(-1, array.shape[-1])[:, list(self.indices)]
        return self.evaluate(binary_array(rows, type(self).__name__)).reshape(array.shape[:-1])


def all_values(function: BooleanFunction) -> NDArray[np.float64]:
    """The values of a rule by its number of ones, or by its settings."""
    profile = function.profile()
    return function.table() if profile is None else profile


def value_sizes(function: BooleanFunction) -> tuple[float, float]:
    """The sizes of the smallest and the largest value that is not 0; 1 if there is none."""
    sizes = np.abs(function.values())
    sizes = sizes[sizes > 0]
    return (float(sizes.min()), float(sizes.max())) if len(sizes) else (1.0, 1.0)


def values_reason(function: BooleanFunction) -> str:
    """Why a rule has values that cannot be told apart in float64; empty if it has none such."""
    smallest, largest = value_sizes(function)
    if largest > MAX_VALUE or smallest < 1 / MAX_VALUE:
        found = largest if largest > MAX_VALUE else smallest
        return (
            f"its values are 0 or of size {1 / MAX_VALUE:g} to {MAX_VALUE:g}, and one is "
            f"{found:.3g}; scale them"
        )
    if largest > MAX_VALUE * smallest:
        return (
            f"its values lie within a factor of {MAX_VALUE:g}, and {largest:.3g} stands beside "
            f"{smallest:.3g}; compile two rules"
        )
    return ""
