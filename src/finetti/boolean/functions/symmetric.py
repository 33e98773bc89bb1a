"""Functions of the number of ones: AND, OR, parity, majority, thresholds."""

from collections.abc import Iterable
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.functions.base import BooleanFunction, as_indices
from finetti.core.errors import bad_argument


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
        name = type(self).__name__
        if name == "Symmetric":
            return f"Symmetric({self.indices}, {self._profile.tolist()})"
        return f"{name}({self.indices})"


class And(Symmetric):
    """1 if all bits are 1.

    >>> And((0, 2))([[1, 0, 1], [1, 1, 0]]).tolist()
    [1.0, 0.0]
    """

    def __init__(self, indices: Iterable[int]):
        indices = as_indices(indices, "And")
        super().__init__(indices, np.arange(len(indices) + 1) == len(indices))


class Or(Symmetric):
    """1 if any bit is 1."""

    def __init__(self, indices: Iterable[int]):
        indices = as_indices(indices, "Or")
        super().__init__(indices, np.arange(len(indices) + 1) > 0)


class Parity(Symmetric):
    """1 if the number of ones is odd (XOR)."""

    def __init__(self, indices: Iterable[int]):
        indices = as_indices(indices, "Parity")
        super().__init__(indices, np.arange(len(indices) + 1) % 2)


class Majority(Symmetric):
    """1 if more than half of the bits are 1."""

    def __init__(self, indices: Iterable[int]):
        indices = as_indices(indices, "Majority")
        super().__init__(indices, 2 * np.arange(len(indices) + 1) > len(indices))


def as_ones_count(count: Any, owner: str) -> int:
    """A number of ones: a whole one, and no Boolean.

    >>> as_ones_count(1.5, "Threshold")
    Traceback (most recent call last):
    finetti.core.errors.InputError: The `count` argument of Threshold must be a whole number. ...
    """
    try:
        if isinstance(count, bool | np.bool_):
            raise TypeError
        return index(count)
    except TypeError as error:
        raise bad_argument("count", owner, "a whole number", repr(count)) from error


class Threshold(Symmetric):
    """1 if at least ``count`` bits are 1."""

    def __init__(self, indices: Iterable[int], count: int):
        indices = as_indices(indices, "Threshold")
        self.count = as_ones_count(count, "Threshold")
        super().__init__(indices, np.arange(len(indices) + 1) >= self.count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.indices}, {self.count})"


class Exactly(Symmetric):
    """1 if exactly ``count`` bits are 1."""

    def __init__(self, indices: Iterable[int], count: int):
        indices = as_indices(indices, "Exactly")
        self.count = as_ones_count(count, "Exactly")
        super().__init__(indices, np.arange(len(indices) + 1) == self.count)

    __repr__ = Threshold.__repr__
