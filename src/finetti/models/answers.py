"""Checks of what a user's model answers; they name the model. Nothing here needs JAX."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.errors import FinettiError, InputError
from finetti.core.numerics.extremes import largest_of

REPEAT_RTOL = 1e-6  # between two equal calls: parallel sums of float32 may differ by less


def check_shape(
    label: str, found: Any, shapes: Sequence[tuple[int, ...]], what: str, *inputs: Any
) -> None:
    """Refuse an answer that is no array of real numbers of one of these shapes."""
    shape = tuple(found.shape) if hasattr(found, "shape") else None
    if shape not in shapes or "float" not in str(found.dtype):
        given = " and ".join(str(list(np.shape(each))) for each in inputs)
        raise InputError(
            f"{label} must return {what}, real numbers. For inputs {given} it returned "
            f"{described(found)}."
        )


def described(found: Any) -> str:
    """The dtype and shape of an array, or the type of anything else.

    >>> described(np.zeros((2, 3))), described((1, 2))
    ('float64[2, 3]', 'a tuple')
    """
    if hasattr(found, "shape") and hasattr(found, "dtype"):
        return f"{str(found.dtype).removeprefix('torch.')}{list(found.shape)}"
    return f"a {type(found).__name__}"


def as_numbers(
    label: str, found: Any, wanted: tuple[int, ...], what: str, calls: int = 2
) -> NDArray[np.float64]:
    """A finite float64 array of the shape ``wanted``, or the reason why it is none.

    The first ``calls`` axes are over calls of the model, whose answers are arrays of the shape of
    the rest; one entry may also be a number.
    """
    array = np.asarray(found)
    over, one = wanted[:calls], wanted[calls:]
    if array.shape == over and one == (1,):
        array = array[..., None]
    if array.shape != wanted:
        if array.shape[:calls] != over:
            raise InputError(f"{label} gave {what} of shape {array.shape} instead of {wanted}.")
        number = " or a number" if one == (1,) else ""
        raise InputError(
            f"{label} gave {what} of shape {array.shape[calls:]} in one call. It must be of shape "
            f"{one}{number}."
        )
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{label} gave {what} that is no array of numbers.") from error
    count = int(np.sum(~np.isfinite(array)))
    if count:
        raise InputError(
            f"{label} gave {what} with {count} NaN or infinite entries of {array.size}. It must "
            "answer every input with finite numbers."
        )
    return array


def refuse_change(label: str, first: Any, second: Any) -> None:
    """Refuse a model whose answer to the same question is another one."""
    if first is None:
        return
    gap, size = np.abs(first - second).max(initial=0.0), np.abs(first).max(initial=0.0)
    if gap > REPEAT_RTOL * largest_of(size, 1e-12):
        raise InputError(
            f"{label} changed its answer by {gap:.3g} between two equal calls. Switch dropout off, "
            "fix its random_state, or, if it is meant to be random, give an object with "
            "sample(rng, …)."
        )


def read_only(array: Any) -> Any:
    """A view that a model cannot write into: others are asked with the same array."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


@contextmanager
def named_errors(
    label: str, what: str = "could not answer", inputs: Sequence[Any] = ()
) -> Iterator[None]:
    """Re-raise any exception of the user's model as an InputError that contains its name."""
    try:
        yield
    except FinettiError:
        raise
    except (Exception, SystemExit) as error:  # code that ends the process is as wrong
        if isinstance(error, ValueError) and "read-only" in str(error):
            raise InputError(f"{label} writes into its arguments; copy them first.") from error
        given = ", ".join(str(list(each.shape)) for each in inputs)
        text = f"{type(error).__name__}: {error}".rstrip(".: ")
        raise InputError(f"{label} {what}{' ' if given else ''}{given}: {text}.") from error
