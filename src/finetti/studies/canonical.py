"""One text for one content: what ids and fingerprints are hashes of."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from finetti.core.errors import InputError

# Python refuses to write whole numbers of more than 4300 digits.
MAX_INTEGER_DIGITS = 4000
INTEGER_LIMIT = 10**MAX_INTEGER_DIGITS


def canonical_json(content: Any) -> str:
    """``content`` as JSON with sorted keys and no spaces.

    >>> canonical_json({"b": 1, "a": [True, 0.5]})
    '{"a":[true,0.5],"b":1}'
    """
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(text: str) -> bytes:
    """The SHA-256 of ``text``."""
    return hashlib.sha256(text.encode()).digest()


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be written: half of a surrogate pair, which Python allows, cannot."""
    return text.isascii() or text == unicode_text(text)


def unicode_text(text: str) -> str:
    r"""``text`` with what cannot be written shown by its number.

    >>> unicode_text("a\ud800")
    'a\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value: Any, path: str) -> Any:
    """``value`` if it is plain data (text, numbers, truth values, lists, tables), else an error.

    Tuples become lists and NumPy scalars become numbers, so that a study written in Python has the
    same ids as one written in TOML.

    >>> plain((1, {"rate": 0.1}), "grid.x")
    [1, {'rate': 0.1}]
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, str) and not is_unicode(value):
        raise InputError(f"`{path}` must be Unicode text. Got {value!a} instead.")
    if isinstance(value, int) and abs(value) >= INTEGER_LIMIT:
        raise InputError(
            f"`{path}` must have at most {MAX_INTEGER_DIGITS} digits. Got more instead."
        )
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"`{path}` must be finite. Got {value} instead.")
        return value
    if isinstance(value, list | tuple):
        return [plain(each, f"{path}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not is_unicode(key):
                raise InputError(f"The names in `{path}` must be text. Got {key!a} instead.")
        return {key: plain(each, f"{path}.{key}") for key, each in value.items()}
    raise InputError(
        f"`{path}` must be plain data: strings, numbers, Booleans, lists, or tables. "
        f"Got {type(value).__name__} instead."
    )
