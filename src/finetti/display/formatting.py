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


def format_bytes(count: float) -> str:
    """A size in memory as people read it.

    >>> format_bytes(3 * 2**30), format_bytes(1536)
    ('3 GiB', '1.5 KiB')
    """
    for name in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or name == "TiB":
            break
        count /= 1024
    return f"{count:.3g} {name}"


def plural(count: int, thing: str) -> str:
    """A number of things.

    >>> plural(1, "head"), plural(3, "head")
    ('1 head', '3 heads')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def short_text(text: str, most: int = 100) -> str:
    """A text that fits into a title: its beginning and its last word.

    >>> short_text("x1 & x2 & x3 & x4 & x5 & x6", most=20)
    'x1 & x2 & … x6'
    """
    if len(text) <= most:
        return text
    return f"{text[: most - 10].rsplit(' ', 1)[0]} … {text.rsplit(' ', 1)[-1][-8:]}"
