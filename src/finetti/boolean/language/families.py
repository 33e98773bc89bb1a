"""Functions of the number of ones: AND, OR, parity, majority, thresholds."""

from collections.abc import Iterable
from operator import index
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import BooleanFunction, as_indices
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
