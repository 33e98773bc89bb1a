"""A function written out: one value per setting of its bits."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import MAX_TABLE_BITS, BooleanFunction, as_indices
from finetti.core.errors import bad_argument


class TruthTable(BooleanFunction):
    """f(b) = values[b_{i₁}b_{i₂}…b_{i_s} read as a binary number].

    Args:
        indices: I = (i₁, …, i_s), the first one most significant.
        values: 2^s real numbers, for 00, 01, 10, 11 and so on.

    >>> implies = TruthTable((3, 7), [1, 1, 0, 1])
    >>> bits = np.zeros((2, 10), dtype=int)
    >>> bits[1, 3] = 1
    >>> implies(bits).tolist()
    [1.0, 0.0]
    """

    def __init__(self, indices: Iterable[int], values: Iterable[float]):
        self.indices = as_indices(indices, "TruthTable")
        if len(self.indices) > MAX_TABLE_BITS:
            requirement = f"at most {MAX_TABLE_BITS} indices"
            raise bad_argument("indices", "TruthTable", requirement, len(self.indices))
        requirement = f"2^{len(self.indices)} finite numbers"
        given = np.asarray(values)
        if given.shape != (2 ** len(self.indices),):
            raise bad_argument("values", "TruthTable", requirement, f"shape {given.shape}")
        if given.dtype.kind not in "buif" or not np.isfinite(given).all():
            raise bad_argument("values", "TruthTable", requirement, given.tolist())
        self._values = given.astype(np.float64)

    def table(self) -> NDArray[np.float64]:
        """The values as given."""
        return self._values

    def evaluate(self, bits: NDArray[Any]) -> NDArray[np.float64]:
        """The value of each row."""
        weights = 2 ** np.arange(self.sparsity - 1, -1, -1, dtype=np.int64)
        return self._values[bits.astype(np.int64) @ weights]

    def __repr__(self) -> str:
        return f"TruthTable({self.indices}, {self._values.tolist()})"
