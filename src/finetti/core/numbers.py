"""Numbers as people give them: checked, as Python's own, and as JSON holds them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from finetti.core.errors import bad_argument


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


def as_whole(value: Any, argument: str, owner: str, least: int = 1) -> int:
    """A whole number ≥ ``least`` of any size, as a Python integer.

    >>> as_whole(1e3, "n_samples", "Sample"), as_whole(10**400, "n_samples", "Sample") > 0
    (1000, True)
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole:
        number = as_real(value, argument, owner, f"a whole number ≥ {least}")
        whole = math.isfinite(number) and number == math.floor(number)
    if not whole or value < least:
        raise bad_argument(argument, owner, f"a whole number ≥ {least}", value)
    return int(value)


def as_real(value: Any, argument: str, owner: str, requirement: str) -> float:
    """``value`` as a float; arrays of one entry and NumPy numbers too."""
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise bad_argument(argument, owner, requirement, repr(value))
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise bad_argument(argument, owner, requirement, repr(value)) from error


def json_number(value: float, nan: str | None = None) -> float | str | None:
    """A number as JSON holds it, which has no infinity and no NaN: a word, and ``nan``.

    >>> [json_number(each) for each in (0.5, math.inf, -math.inf, math.nan)]
    [0.5, 'Infinity', '-Infinity', None]
    """
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return nan if math.isnan(value) else float(value)


def to_plain(value: Any, nan: str | None = None) -> Any:
    """Plain data for JSON of mappings, sequences, arrays, tables and dataclasses of such data.

    Numbers become Python's own, and those that JSON does not have what `json_number` makes of them;
    a table becomes a list with one mapping per row, an object with ``to_dict`` what that returns,
    another dataclass a mapping of the fields that its repr shows, and anything else its text.

    >>> to_plain({"sizes": (1, math.inf), "error": math.nan}, nan="NaN")
    {'sizes': [1, 'Infinity'], 'error': 'NaN'}
    """
    if hasattr(value, "itertuples"):
        value = value.to_dict("records")
    elif hasattr(value, "tolist"):
        value = value.tolist()
    elif hasattr(value, "to_dict"):
        value = value.to_dict()
    elif is_dataclass(value):
        value = field_values(value)
    if isinstance(value, Mapping):
        return {str(name): to_plain(each, nan) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each, nan) for each in value]
    if isinstance(value, float):
        return json_number(value, nan)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def field_values(value: Any, *properties: str) -> dict[str, Any]:
    """The fields of a dataclass that its repr shows, and the ``properties`` that are named.

    >>> from dataclasses import dataclass
    >>> field_values(dataclass(type("Point", (), {"__annotations__": {"x": int}}))(3))
    {'x': 3}
    """
    shown = [each.name for each in fields(value) if each.repr]
    return {name: getattr(value, name) for name in (*shown, *properties)}


def largest_of(*values: Any) -> float:
    """The largest number, NaN if any is NaN: `max` would forget it (``max(0.0, nan)`` is 0.0).

    As for `max`, several numbers are given, or one iterable of them. Errors, ratios and bounds are
    collected with it, so that what is not a number never passes for a small one.

    >>> largest_of(0.0, math.nan), largest_of(0.5 * each for each in range(3))
    (nan, 1.0)
    """
    numbers = _floats(values)
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def smallest_of(*values: Any) -> float:
    """The smallest number, NaN if any is NaN; see `largest_of`.

    >>> smallest_of(math.inf, math.nan), smallest_of([0.5, 0.25])
    (nan, 0.25)
    """
    numbers = _floats(values)
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def _floats(values: Sequence[Any]) -> list[float]:
    return [float(each) for each in (values if len(values) > 1 else values[0])]
