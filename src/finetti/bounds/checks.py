"""Logarithms of numbers of any size, and dataclasses that check their fields."""

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

# What a field's metadata holds: the check, and that it is a norm, which `sensitivity` varies.
CHECK, NORM = "finetti.check", "finetti.norm"
Check = Callable[[Any, str, str], Any]  # value, its name, its owner ↦ the value as it is kept


def checked(check: Check, default: Any = MISSING, **metadata: Any) -> Any:
    """A field that is kept as ``check`` gives it; None is let through where it is the default."""
    return field(default=default, metadata={CHECK: check, **metadata})


@dataclass(frozen=True)
class Checked:
    """A frozen dataclass whose `checked` fields are checked."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, check = getattr(self, each.name), each.metadata.get(CHECK)
            if check is not None and not (value is None and each.default is None):
                kept = check(value, each.name, type(self).__name__)
                object.__setattr__(self, each.name, kept)


def log_of(value: float) -> float:
    """log x, and −∞ for x = 0; integers may be of any size.

    >>> log_of(0), round(log_of(10**1000), 6)
    (-inf, 2302.585093)
    """
    return math.log(value) if value > 0 else -math.inf


def text_of(log_value: float) -> str:
    """e^x in three digits, also where no float holds it.

    >>> text_of(math.log(0.25)), text_of(1e4), text_of(-1e4)
    ('0.25', '10^4.34e+03', '10^-4.34e+03')
    """
    if abs(log_value) < 700:
        return f"{math.exp(log_value):.3g}"
    return f"10^{log_value / math.log(10):.3g}"


def exp_of(log_value: float) -> float:
    """e^x, and ∞ where that is too large for a float.

    >>> exp_of(0.0), exp_of(1e4)
    (1.0, inf)
    """
    return math.exp(log_value) if log_value < 709.78 else math.inf
