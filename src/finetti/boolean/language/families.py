"""Functions of the number of ones (AND, OR, parity, majority, thresholds), and truth tables."""

from collections.abc import Iterable
from operator import index
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import MAX_TABLE_BITS, BooleanFunction, as_indices
from finetti.core.errors import bad_argument

Kind = Literal["and", "or", "parity", "majority", "atleast", "exactly"]


def by_ones(kind: Kind, ones: NDArray[Any], size: int, count: int = 0) -> NDArray[np.bool_]:
    """The value of a family by the number of ``ones`` among ``size`` bits; ``count`` is the number
    of atleast and exactly.

    >>> by_ones("majority", np.arange(5), 4).tolist()
    [False, False, False, True, True]
    """
    rules = {
        "and": ones == size,
        "or": ones > 0,
        "parity": ones % 2 == 1,
        "majority": 2 * ones > size,
        "atleast": ones >= count,
        "exactly": ones == count,
    }
    return rules[kind]


class Symmetric(BooleanFunction):
    """f(b) = p(r) with r = Σ_I b_i: invariant under permutations of its bits.

    Args:
        indices: I.
        profile: p(0), …, p(s), real numbers.

    >>> two_of_three = Symmetric((4, 7, 9), [0, 0, 1, 0])
    >>> two_of_three.table().tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]

    Reference: Section 4.4, edelman2022.
    """

    def __init__(self, indices: Iterable[int], profile: Iterable[float]):
        self.indices = as_indices(indices, type(self).__name__)
        self._profile = np.asarray(profile, dtype=np.float64)
        if self._profile.shape != (len(self.indices) + 1,) or not np.isfinite(self._profile).all():
            requirement = f"{len(self.indices) + 1} finite numbers, one per number of ones"
            raise bad_argument("profile", "Symmetric", requirement, profile)

    def profile(self) -> NDArray[np.float64]:
        """p(0), …, p(s)."""
        return self._profile

    def evaluate(self, bits: NDArray[Any]) -> NDArray[np.float64]:
        """p(Σ_I b_i)."""
        return self._profile[bits.sum(axis=1, dtype=np.int64)]

    def __repr__(self) -> str:
        return f"Symmetric({self.indices}, {self._profile.tolist()})"


class Family(Symmetric):
    """A symmetric function that has a name.

    Attributes:
        kind: its name in an expression.
        count: the number of ones of a threshold.
    """

    kind: Kind
    count: int = 0

    def __init__(self, indices: Iterable[int]):
        indices = as_indices(indices, type(self).__name__)
        ones = np.arange(len(indices) + 1)
        super().__init__(indices, by_ones(self.kind, ones, len(indices), self.count))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.indices})"


class And(Family):
    """1 if all bits are 1.

    >>> And((0, 2))([[1, 0, 1], [1, 1, 0]]).tolist()
    [1.0, 0.0]
    """

    kind = "and"


class Or(Family):
    """1 if any bit is 1."""

    kind = "or"


class Parity(Family):
    """1 if the number of ones is odd (XOR)."""

    kind = "parity"


class Majority(Family):
    """1 if more than half of the bits are 1."""

    kind = "majority"


class Threshold(Family):
    """1 if at least ``count`` bits are 1.

    >>> Threshold((1, 2), 1.5)
    Traceback (most recent call last):
    finetti.core.errors.InputError: The `count` argument of Threshold must be a whole number. ...
    """

    kind = "atleast"

    def __init__(self, indices: Iterable[int], count: int):
        try:
            if isinstance(count, bool | np.bool_):
                raise TypeError
            self.count = index(count)
        except TypeError as error:
            name = type(self).__name__
            raise bad_argument("count", name, "a whole number", repr(count)) from error
        super().__init__(indices)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.indices}, {self.count})"


class Exactly(Threshold):
    """1 if exactly ``count`` bits are 1."""

    kind = "exactly"


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
