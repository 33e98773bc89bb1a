"""Arrays that cannot be changed, because results that depend on them are kept."""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of ``array`` that refuses to be written to.

    >>> read_only(np.ones(2))[0] = 3
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def freeze(owner: Any) -> None:
    """Make every array of a dataclass read-only; change it with `dataclasses.replace`."""
    for each in fields(owner):
        value = getattr(owner, each.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(owner, each.name, read_only(value))
