"""The limits on weights, scores and memory: what lies outside is refused in one sentence.

Within them nothing overflows, no denominator vanishes, and a value that is right up to rounding is
right to `EXACT_RTOL` on every machine. What the compiler writes stays far below them.
"""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.rule import MAX_VALUE
from finetti.core.errors import InputError

MAX_WEIGHT = MAX_VALUE  # a lookup writes the values of its rule
MAX_BYTES = 2**31  # of anything that is made of a rule, and of a file
MAX_SCORE_LEAD = 60.0  # by which a score may exceed one that every input has: e^60 in a sum


def check_weight_range(**arrays: NDArray[Any]) -> None:
    """Refuse weights that are no numbers, or larger than 10⁶.

    >>> check_weight_range(query=np.ones(3), key=np.array([1.0, -1e7]))
    Traceback (most recent call last):
    finetti.core.errors.InputError: The weights of a network are numbers up to 1e+06 in size, ...
    """
    for name, array in arrays.items():
        if not array.size:
            continue
        ends = array.min(), array.max()
        if not (ends[0] >= -MAX_WEIGHT and ends[1] <= MAX_WEIGHT):  # False for what is not a number
            found = ends[0] if not ends[0] >= -MAX_WEIGHT else ends[1]
            raise InputError(
                f"The weights of a network are numbers up to {MAX_WEIGHT:g} in size, and {name} "
                f"has {found:.3g}: divide them, or write the file again."
            )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of ``array`` that refuses to be written to."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def freeze_arrays(owner: Any) -> None:
    """Check the weights of a frozen dataclass and make its arrays read-only, because results that
    depend on them are kept; `dataclasses.replace` changes a copy."""
    arrays = {each.name: getattr(owner, each.name) for each in fields(owner)}
    arrays = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    check_weight_range(**arrays)
    for name, array in arrays.items():
        object.__setattr__(owner, name, read_only(array))


def check_score_lead(lead: float) -> None:
    """Refuse scores so far apart that the others are nothing beside them."""
    if lead > MAX_SCORE_LEAD:
        raise InputError(
            f"The scores of a network lie up to {MAX_SCORE_LEAD:g} above those that every input "
            f"has, and here it is {lead:.3g}: divide the queries or the keys."
        )
