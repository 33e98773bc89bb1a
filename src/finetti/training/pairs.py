"""Networks as a pair of functions."""

from typing import Any


def pair_of(found: Any) -> tuple[Any, Any] | None:
    """(init, apply): functions of these names, or both in a plain tuple; None if there are none.

    >>> pair_of((print, len)) == (print, len)
    True
    >>> pair_of(print) is None
    True
    """
    pair = getattr(found, "init", None), getattr(found, "apply", None)
    # By name also in a named tuple, whose order is its own.
    if isinstance(found, tuple) and not hasattr(found, "_fields"):
        pair = found
    return pair if len(pair) == 2 and all(map(callable, pair)) else None
