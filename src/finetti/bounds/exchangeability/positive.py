"""Numbers ≥ 0 kept as logarithms, so that formulas written for floats never overflow."""

import math
from dataclasses import dataclass
from typing import Any

from finetti.bounds.value import exp_of, log_of


@dataclass(frozen=True, order=True)
class Positive:
    """A number x ≥ 0 known by log x. Goes through +, ·, / and powers like a float; 0/0 = 0.

    The constants of `finetti.attention.lipschitz` are written for anything with these operations;
    given `Positive` numbers they work at depth 1000 and norms of 1000.

    >>> large = Positive.of(1000.0) ** 2000
    >>> round((large * 2 + 1).log, 6) == round(2000 * math.log(1000) + math.log(2), 6)
    True
    """

    log: float

    @classmethod
    def of(cls, value: "float | Positive") -> "Positive":
        """``value`` as a `Positive`; it must be ≥ 0."""
        return value if isinstance(value, Positive) else cls(log_of(value))

    def __float__(self) -> float:
        return exp_of(self.log)

    def __add__(self, other: Any) -> "Positive":
        low, high = sorted((self.log, Positive.of(other).log))
        return self if high == -math.inf else Positive(high + math.log1p(math.exp(low - high)))

    def __mul__(self, other: Any) -> "Positive":
        return Positive(self.log + Positive.of(other).log)

    def __truediv__(self, other: Any) -> "Positive":
        return self if self.log == -math.inf else Positive(self.log - Positive.of(other).log)

    def __rtruediv__(self, other: Any) -> "Positive":
        return Positive.of(other) / self

    def __pow__(self, power: float) -> "Positive":
        return Positive(self.log * power)

    __radd__, __rmul__ = __add__, __mul__


def total(numbers: Any) -> Positive:
    """Their sum; 0 for none.

    >>> round(float(total([1.0, Positive.of(2.0)])), 12)
    3.0
    """
    result = Positive(-math.inf)
    for number in numbers:
        result = result + number
    return result
