"""One text for one content: what ids and fingerprints are hashes of."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from finetti.core.errors import InputError


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


def plain(value: Any, path: str) -> Any:
    """``value`` if it is plain data (text, numbers, truth values, lists, tables), else an error.

    Tuples become lists and NumPy scalars become numbers, so that a study written in Python has the
    same ids as one written in TOML.

    >>> plain((1, {"rate": 0.1}), "grid.x")
    [1, {'rate': 0.1}]
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
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
            if not isinstance(key, str):
                raise InputError(f"The names in `{path}` must be text. Got {key!r} instead.")
        return {key: plain(each, f"{path}.{key}") for key, each in value.items()}
    raise InputError(
        f"`{path}` must be plain data: text, numbers, truth values, lists or tables. "
        f"Got {type(value).__name__} instead."
    )
