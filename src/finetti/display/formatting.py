"""How numbers are written, everywhere: four significant digits, intervals in brackets."""

import math
from typing import Any

DIGITS = 4
EMPTY = "–"


def format_number(value: float, digits: int = DIGITS) -> str:
    """``value`` with ``digits`` significant digits; all digits of whole numbers.

    >>> [format_number(x) for x in (0.123456, 12345.6, 3e-16, 1024, float("inf"), float("nan"))]
    ['0.1235', '12346', '3e-16', '1024', '∞', 'NaN']
    """
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    # `g` alone would write 12346 as 1.235e+04, which nobody reads easily.
    if 10**digits - 0.5 <= abs(value) < 1e7:
        return f"{value:.0f}"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


def format_interval(value: float, interval: tuple[float, float] | None) -> str:
    """``value`` with its interval.

    >>> format_interval(0.52, (0.48, 0.56))
    '0.52 [0.48, 0.56]'
    """
    if interval is None:
        return format_number(value)
    low, high = interval
    return f"{format_number(value)} [{format_number(low)}, {format_number(high)}]"


def format_duration(seconds: float) -> str:
    """A time that people read at a glance.

    >>> [format_duration(t) for t in (0.0002, 0.0034, 1.26, 75.2, 3780.0)]
    ['< 1 ms', '3 ms', '1.3 s', '1 min 15 s', '1 h 03 min']
    """
    if seconds < 0.001:
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def format_value(value: Any) -> str:
    """Any cell or field as text; arrays with more than one entry by shape and dtype.

    >>> format_value(True), format_value(None), format_value("<b>"), format_value((1, 0.25))
    ('yes', '–', '<b>', '(1, 0.25)')
    """
    # Arrays are known by what they have, so that neither NumPy nor JAX is imported for them.
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        if math.prod(shape) != 1:
            return f"{value.dtype} array of shape {tuple(shape)}"
        value = value.item()
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_number(value)
    if isinstance(value, list | tuple):
        return f"({', '.join(map(format_value, value))})"
    return str(value)
