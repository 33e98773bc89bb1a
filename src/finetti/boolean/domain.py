"""The numbers that this room computes with: what lies outside is refused in one sentence.

Within these limits nothing overflows, no denominator vanishes, and a value that is right up to
rounding is right to `finetti.boolean.check.EXACT` on every machine. What `compile` and `compose`
write stays far below them.
"""

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.functions.base import BooleanFunction
from finetti.boolean.functions.expressions import Rule
from finetti.core.errors import InputError

LARGEST = 1e6  # of a weight; of a rule's values, and of the ratio of two of them
FURTHEST = 60.0  # by which a score may exceed one that every input has: e^60 in a sum


def refuse_weights(**arrays: NDArray[np.floating] | None) -> None:
    """Refuse weights that are no numbers, or larger than 10⁶.

    >>> refuse_weights(query=np.ones(3), key=np.array([1.0, -1e7]))
    Traceback (most recent call last):
    finetti.core.errors.InputError: The weights of a network are numbers up to 1e+06 in size, ...
    """
    for name, array in arrays.items():
        if array is None or not array.size:
            continue
        ends = array.min(), array.max()
        if not (ends[0] >= -LARGEST and ends[1] <= LARGEST):  # False for what is not a number
            found = ends[0] if not ends[0] >= -LARGEST else ends[1]
            raise InputError(
                f"The weights of a network are numbers up to {LARGEST:g} in size, and {name} has "
                f"{found:.3g}: divide them, or write the file again."
            )


def refuse_scores(apart: float) -> None:
    """Refuse scores so far apart that the others are nothing beside them."""
    if apart > FURTHEST:
        raise InputError(
            f"The scores of a network lie up to {FURTHEST:g} above those that every input has, and "
            f"here it is {apart:.3g}: divide the queries or the keys."
        )


def value_sizes(function: BooleanFunction) -> tuple[float, float]:
    """The sizes of the smallest and the largest value that is not 0; 1 if there is none."""
    if isinstance(function, Rule):  # 0 and 1, whatever the number of its bits
        return 1.0, 1.0
    profile = function.profile()
    sizes = np.abs(function.table() if profile is None else profile)
    sizes = sizes[sizes > 0]
    return (float(sizes.min()), float(sizes.max())) if len(sizes) else (1.0, 1.0)


def values_reason(function: BooleanFunction) -> str:
    """Why a rule has values that cannot be told apart in float64; empty if it has none such."""
    smallest, largest = value_sizes(function)
    if largest > LARGEST or smallest < 1 / LARGEST:
        found = largest if largest > LARGEST else smallest
        return (
            f"its values are 0 or of size {1 / LARGEST:g} to {LARGEST:g}, and one is {found:.3g}; "
            "scale them"
        )
    if largest > LARGEST * smallest:
        return (
            f"its values lie within a factor of {LARGEST:g}, and {largest:.3g} stands beside "
            f"{smallest:.3g}; compile two rules"
        )
    return ""


def refuse_values(function: BooleanFunction) -> None:
    """Refuse a rule for its values."""
    reason = values_reason(function)
    if reason:
        raise InputError(f"The rule cannot be compared with a network: {reason}.")
