"""Checks of arguments: numbers, arrays, random generators, letters, forms."""

import math
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from finetti.core.arrays import evaluate_now, host_view, is_concrete
from finetti.core.errors import InputError, bad_argument

Floats = NDArray[np.floating[Any]]  # float64 throughout
Letters = NDArray[np.integer]


def as_generator(rng: Any, owner: str) -> np.random.Generator:
    """The generator itself, or that of a seed. There is no default: randomness is never hidden."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer) or rng < 0:
        raise bad_argument("rng", owner, "a NumPy Generator or a seed ≥ 0", repr(rng))
    return np.random.default_rng(int(rng))


def as_letters(tokens: Any, n_letters: int, owner: str) -> Letters:
    """Letters 0, …, n_letters − 1 of shape (n, L)."""
    array = np.asarray(tokens)
    if array.ndim != 2:
        raise bad_argument("tokens", owner, "letters of shape (n, L)", f"shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise bad_argument("tokens", owner, "whole numbers", f"dtype {array.dtype}")
    array = array.astype(np.intp)
    if array.size and not (array.min() >= 0 and array.max() < n_letters):
        wanted = f"letters from 0 to {n_letters - 1}"
        raise bad_argument("tokens", owner, wanted, f"{array.min()} to {array.max()}")
    return array


def as_floats(values: Any, argument: str, owner: str) -> Floats:
    """Numbers of any shape, in float64."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:  # a ragged list, or words
        raise bad_argument(argument, owner, "an array of numbers", type(values).__name__) from error


def as_answers(y: Any, shape: tuple[int, ...], argument: str, owner: str) -> Any:
    """One answer per sequence, of ``shape``; more axes in front are more answers."""
    array = np.asarray(y)
    if array.shape[array.ndim - len(shape) :] != shape:
        wanted = f"of shape (…, {', '.join(map(str, shape))})"
        raise bad_argument(argument, owner, wanted, f"shape {array.shape}")
    check_finite(array, argument, owner)
    return array


def as_vectors(tokens: Any, shape: tuple[Any, ...], argument: str, owner: str) -> Floats:
    """Finite float64 numbers of ``shape``, where text names an axis of any size.

    >>> as_vectors([[1, 2]], ("n", 2), "query", "LinearGaussian")
    array([[1., 2.]])
    """
    array = as_floats(tokens, argument, owner)
    fits = array.ndim == len(shape) and all(
        isinstance(wanted, str) or size == wanted
        for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = f"({', '.join(map(str, shape))})"
        raise bad_argument(argument, owner, f"of shape {wanted}", f"shape {array.shape}")
    check_finite(array, argument, owner)
    return array


def one_hot(letters: Any, n_letters: int) -> Floats:
    """The unit vectors of the letters, along a new last axis.

    >>> one_hot([1, 0], 2)
    array([[0., 1.],
           [1., 0.]])
    """
    return np.eye(n_letters)[np.asarray(letters, dtype=np.intp)]


Form = Literal["derived", "printed"]


def check_form(form: str, owner: str) -> None:
    """Refuse anything but the two forms.

    >>> check_form("derived", "softmax_constant")
    """
    if form not in ("derived", "printed"):
        raise bad_argument("form", owner, '"derived" or "printed"', repr(form))


def check_finite(array: Any, argument: str, owner: str) -> None:
    """Refuse NaN and infinity. Values inside a JAX transformation cannot be seen and pass."""
    if not is_concrete(array):
        return
    array, xp = host_view(array)
    with nullcontext() if xp is np else evaluate_now():
        finite = xp.isfinite(array)
        count = int(finite.size - finite.sum())
    if count:
        raise InputError(
            f"The `{argument}` argument of {owner} must be finite. Got {count} NaN or infinite "
            f"entries of {finite.size} instead. Clean or mask them first."
        )


def check_rank(array: Any, rank: int, shape: str, argument: str, owner: str) -> None:
    """Refuse arrays with fewer than ``rank`` axes; ``shape`` names the expected axes."""
    if array.ndim < rank:
        raise bad_argument(argument, owner, f"an array of shape {shape}", f"shape {array.shape}")


def check_positive(value: Any, argument: str, owner: str, ranks: tuple[int, ...] = (0,)) -> None:
    """Refuse what is no finite number > 0, or array of such with one of these ``ranks``.

    Inside a JAX transformation only the rank can be seen.
    """
    requirement = "a finite number > 0" + (" or an array of shape (d,)" if 1 in ranks else "")
    if np.ndim(value) not in ranks:
        raise bad_argument(argument, owner, requirement, f"shape {np.shape(value)}")
    if not is_concrete(value):
        return
    number = np.asarray(value)
    # Text, objects, truth values and complex numbers; "V" are JAX's own kinds of half precision.
    if number.dtype.kind not in "iufV" or not (np.isfinite(number) & (number > 0)).all():
        raise bad_argument(argument, owner, requirement, repr(value))


def as_norm(value: Any, argument: str, owner: str) -> float:
    """A finite number ≥ 0, as a float.

    >>> as_norm(2, "value_norm", "HeadClass")
    2.0
    """
    number = as_real(value, argument, owner, "a finite number ≥ 0")
    if not 0 <= number < math.inf:
        raise bad_argument(argument, owner, "a finite number ≥ 0", value)
    return number


def as_positive(value: Any, argument: str, owner: str) -> float:
    """A finite number > 0, as a float."""
    number = as_real(value, argument, owner, "a finite number > 0")
    if not 0 < number < math.inf:
        raise bad_argument(argument, owner, "a finite number > 0", value)
    return number


def as_whole(value: Any, argument: str, owner: str, least: int = 1) -> int:
    """A whole number ≥ ``least`` of any size, as a Python integer.

    >>> as_whole(1e3, "n_samples", "Sample"), as_whole(10**400, "n_samples", "Sample") > 0
    (1000, True)
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole:
        number = as_real(value, argument, owner, f"a whole number ≥ {least}")
        whole = math.isfinite(number) and number == math.floor(number)
    if not whole or value < least:
        raise bad_argument(argument, owner, f"a whole number ≥ {least}", value)
    return int(value)


def as_real(value: Any, argument: str, owner: str, requirement: str) -> float:
    """``value`` as a float; arrays of one entry and NumPy numbers too."""
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise bad_argument(argument, owner, requirement, repr(value))
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise bad_argument(argument, owner, requirement, repr(value)) from error
