"""Checks of arguments that are random generators, letters and arrays of numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.core.arrays import check_finite
from finetti.core.errors import bad_argument

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
