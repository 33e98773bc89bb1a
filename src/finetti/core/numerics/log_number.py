"""Numbers ≥ 0 kept as logarithms, so that formulas written for floats never overflow."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class LogNumber:
    """A number x ≥ 0 known by log x. Goes through +, ·, / and powers like a float; 0/0 = 0.

    The constants of `finetti.attention.lipschitz` are written for anything with these operations;
    given `LogNumber`s they work at depth 1000 and norms of 1000.

    >>> large = LogNumber.from_float(1000.0) ** 2000
    >>> round((large * 2 + 1).log, 6) == round(2000 * math.log(1000) + math.log(2), 6)
    True
    """

    log: float

    @classmethod
    def from_float(cls, value: "float | LogNumber") -> "LogNumber":
        """Return ``value``, which must be ≥ 0, as a `LogNumber`; NaN stays NaN."""
        if isinstance(value, LogNumber):
            return value
        return cls(-math.inf if value <= 0 else math.log(value))

    def __float__(self) -> float:
        return math.inf if self.log >= 709.78 else math.exp(self.log)

    def __add__(self, other: Any) -> "LogNumber":
        low, high = sorted((self.log, LogNumber.from_float(other).log))
        return self if high == -math.inf else LogNumber(high + math.log1p(math.exp(low - high)))

    def __mul__(self, other: Any) -> "LogNumber":
        return LogNumber(self.log + LogNumber.from_float(other).log)

    def __truediv__(self, other: Any) -> "LogNumber":
        if self.log == -math.inf:
            return self
        return LogNumber(self.log - LogNumber.from_float(other).log)

    def __rtruediv__(self, other: Any) -> "LogNumber":
        return LogNumber.from_float(other) / self

    def __pow__(self, power: float) -> "LogNumber":
        return LogNumber(self.log * power)

    __radd__, __rmul__ = __add__, __mul__


def total(numbers: Iterable[Any]) -> LogNumber:
    """Return the sum of ``numbers``; 0 for none.

    >>> round(float(total([1.0, LogNumber.from_float(2.0)])), 12)
    3.0
    """
    result = LogNumber(-math.inf)
    for number in numbers:
        result = result + number
    return result
