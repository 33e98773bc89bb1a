"""What every description checks of its numbers, and their logarithms."""

import math
from typing import Any

from finetti.core.errors import bad_argument

# The metadata that marks a field as a norm.
NORM = "finetti.norm"


def as_norm(value: Any, argument: str, owner: str) -> float:
    """A finite number ≥ 0, as a float.

    >>> as_norm(2, "value_norm", "HeadClass")
    2.0
    """
    number = as_real(value, argument, owner, "a finite number ≥ 0")
    if not 0 <= number < math.inf:
        raise bad_argument(argument, owner, "a finite number ≥ 0", value)
    return number


def as_positive(value: Any, argument: str, owner: str) -> float:
    """A finite number > 0, as a float."""
    number = as_real(value, argument, owner, "a finite number > 0")
    if not 0 < number < math.inf:
        raise bad_argument(argument, owner, "a finite number > 0", value)
    return number


def as_whole(value: Any, argument: str, owner: str) -> int:
    """A whole number ≥ 1 of any size, as a Python integer.

    >>> as_whole(1e3, "n_samples", "Sample"), as_whole(10**400, "n_samples", "Sample") > 0
    (1000, True)
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole:
        number = as_real(value, argument, owner, "a whole number ≥ 1")
        whole = math.isfinite(number) and number == math.floor(number)
    if not whole or value < 1:
        raise bad_argument(argument, owner, "a whole number ≥ 1", value)
    return int(value)


def as_real(value: Any, argument: str, owner: str, requirement: str) -> float:
    """``value`` as a float; arrays of one entry and NumPy numbers too."""
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise bad_argument(argument, owner, requirement, repr(value))
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise bad_argument(argument, owner, requirement, repr(value)) from error


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
