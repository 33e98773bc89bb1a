"""Plain data of numbers and text, fit for JSON and for a terminal."""

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


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


# Control characters of ASCII (but for tab and newline) and of Latin-1, which move the cursor or
# reach the clipboard; marks that turn the direction of text; halves of characters, which stand for
# bytes of file names that are no UTF-8.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """Return ``text`` without what would steer a terminal; a mark takes the place of each.

    >>> clean_text("layer\\x1b[2J.weight")
    'layer�[2J.weight'
    """
    return _UNPRINTABLE.sub(REPLACEMENT, text)
