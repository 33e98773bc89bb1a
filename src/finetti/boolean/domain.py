"""The numbers that this room computes with: what lies outside is refused in one sentence.

Within these limits nothing overflows, no denominator vanishes, and a value that is right up to
rounding is right to `check.EXACT_RTOL` on every machine. What `compile` and `compose` write stays
far below them.
"""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.rule import BooleanFunction
from finetti.core.errors import InputError

MAX_WEIGHT = 1e6  # of a weight; of a rule's values, and of the ratio of two of them
MAX_SCORE_LEAD = 60.0  # by which a score may exceed one that every input has: e^60 in a sum


def refuse_weights(**arrays: NDArray[np.floating]) -> None:
    """Refuse weights that are no numbers, or larger than 10⁶.

    >>> refuse_weights(query=np.ones(3), key=np.array([1.0, -1e7]))
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
    """A view of ``array`` that refuses to be written to.

    >>> read_only(np.ones(2))[0] = 3
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def seal(owner: Any) -> None:
    """Refuse the weights of a dataclass (`arrays`), and make its arrays read-only, because results
    that depend on them are kept; `dataclasses.replace` changes a copy."""
    for each in fields(owner):
        value = getattr(owner, each.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(owner, each.name, read_only(value))
    refuse_weights(**owner.arrays)


def refuse_scores(apart: float) -> None:
    """Refuse scores so far apart that the others are nothing beside them."""
    if apart > MAX_SCORE_LEAD:
        raise InputError(
            f"The scores of a network lie up to {MAX_SCORE_LEAD:g} above those that every input "
            f"has, and here it is {apart:.3g}: divide the queries or the keys."
        )


def all_values(function: BooleanFunction) -> NDArray[np.float64]:
    """The values of a rule by its number of ones, or by its settings."""
    profile = function.profile()
    return function.table() if profile is None else profile


def value_sizes(function: BooleanFunction) -> tuple[float, float]:
    """The sizes of the smallest and the largest value that is not 0; 1 if there is none."""
    if isinstance(function, ExpressionRule):  # 0 and 1, whatever the number of its bits
        return 1.0, 1.0
    sizes = np.abs(all_values(function))
    sizes = sizes[sizes > 0]
    return (float(sizes.min()), float(sizes.max())) if len(sizes) else (1.0, 1.0)


def values_reason(function: BooleanFunction) -> str:
    """Why a rule has values that cannot be told apart in float64; empty if it has none such."""
    smallest, largest = value_sizes(function)
    if largest > MAX_WEIGHT or smallest < 1 / MAX_WEIGHT:
        found = largest if largest > MAX_WEIGHT else smallest
        return (
            f"its values are 0 or of size {1 / MAX_WEIGHT:g} to {MAX_WEIGHT:g}, and one is "
            f"{found:.3g}; scale them"
        )
    if largest > MAX_WEIGHT * smallest:
        return (
            f"its values lie within a factor of {MAX_WEIGHT:g}, and {largest:.3g} stands beside "
            f"{smallest:.3g}; compile two rules"
        )
    return ""
