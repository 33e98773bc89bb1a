"""The values of one parameter of a grid: a list, a range, or a range of equal ratios."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from finetti.core.errors import InputError
from finetti.studies.canonical import canonical_json, plain

MAX_VALUES = 1_000_000
MAX_REAL = 1e300  # beyond it the arithmetic of a range may not be finite
GRID_FORMS = "a list, {range = [first, last, step]} or {logrange = [first, last, count]}"


def _wrong(path: str, requirement: str, got: Any) -> InputError:
    return InputError(f"`{path}` must be {requirement}. Got {got} instead.")


def _three_numbers(value: Any, path: str, form: str) -> Sequence[Any]:
    numbers = isinstance(value, list | tuple) and len(value) == 3
    if not numbers or any(isinstance(x, bool) or not isinstance(x, int | float) for x in value):
        raise _wrong(path, f"{form}, three numbers", value)
    whole = all(isinstance(x, int) for x in value)
    if not whole and not all(abs(x) <= MAX_REAL for x in value):
        raise _wrong(path, f"{form}, finite numbers", value)
    return plain(value, path)


def arithmetic(value: Any, path: str) -> list[Any]:
    """first, first + step, … up to and including last; whole numbers stay whole.

    >>> arithmetic([0.1, 0.5, 0.1], "grid.rate"), arithmetic([8, 2, -3], "grid.depth")
    ([0.1, 0.2, 0.3, 0.4, 0.5], [8, 5, 2])
    """
    form = "[first, last, step]"
    first, last, step = _three_numbers(value, path, form)
    if step == 0 or (last - first) * step < 0:
        raise _wrong(path, f"{form} with a step that leads from first to last", value)
    make = int if isinstance(first, int) and isinstance(step, int) else float
    if not isinstance(last, int) or make is float:
        # Decimal, so that 0.1, 0.2, 0.3 are the numbers that people write and not their sums.
        first, last, step = (Decimal(repr(x)) for x in (first, last, step))
    reach: Any = last - first
    count: int = (reach // step if isinstance(step, int) else int(reach / step)) + 1
    if count > MAX_VALUES:
        raise _wrong(path, f"at most {MAX_VALUES} values", f"{count} values")
    return [make(first + index * step) for index in range(count)]


def geometric(value: Any, path: str) -> list[Any]:
    """``count`` values of equal ratios from first to last; between whole numbers, whole ones.

    >>> geometric([10, 1000, 3], "grid.n"), geometric([1, 4, 6], "grid.n")
    ([10, 100, 1000], [1, 2, 3, 4])
    >>> geometric([0.1, 10, 3], "grid.rate")
    [0.1, 1.0, 10.0]
    """
    form = "[first, last, count]"
    first, last, count = _three_numbers(value, path, form)
    if not 0 < first <= MAX_REAL or not 0 < last <= MAX_REAL:
        raise _wrong(path, f"{form} with positive ends", value)
    if not isinstance(count, int) or not 2 <= count <= MAX_VALUES:
        raise _wrong(path, f"{form} with a whole count from 2 to {MAX_VALUES}", value)
    low, high = math.log(first), math.log(last)
    inner = [math.exp(low + (high - low) * i / (count - 1)) for i in range(1, count - 1)]
    smallest, largest = min(first, last), max(first, last)
    # Rounded, so that 1 between 0.1 and 10 is 1; not past the ends, which are exact.
    rounded = [Decimal(f"{each:.12g}") for each in inner]
    if isinstance(first, int) and isinstance(last, int):
        values = [first, *(min(largest, max(smallest, round(each))) for each in rounded), last]
    else:
        pairs = zip(rounded, inner, strict=True)
        within = (float(r) if smallest <= float(r) <= largest else each for r, each in pairs)
        values = [float(first), *within, float(last)]
    return list(dict.fromkeys(values))


def grid_values(value: Any, path: str) -> list[Any]:
    """All values of one parameter.

    >>> grid_values({"range": [100, 300, 100]}, "grid.n")
    [100, 200, 300]
    """
    if isinstance(value, Mapping):
        makers = {"range": arithmetic, "logrange": geometric}
        unknown = [key for key in value if key not in makers]
        if unknown:
            raise InputError(f"`{path}.{unknown[0]}` is not known. Write `{path}` as {GRID_FORMS}.")
        if len(value) != 1:
            raise _wrong(path, GRID_FORMS, dict(value))
        ((form, ends),) = value.items()
        return makers[form](ends, f"{path}.{form}")
    if not isinstance(value, list | tuple):
        raise InputError(f"`{path}` must be {GRID_FORMS}. A single value belongs under `fixed`.")
    if not value:
        raise _wrong(path, "a list of at least one value", "an empty one")
    values = plain(value, path)
    seen: set[str] = set()
    for text in map(canonical_json, values):
        if text in seen:
            raise _wrong(path, "a list of different values", f"{text} twice")
        seen.add(text)
    return values


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values, the last parameter fastest.

    >>> list(combinations({"n": [1, 2], "m": [3]}))
    [{'n': 1, 'm': 3}, {'n': 2, 'm': 3}]
    """
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
