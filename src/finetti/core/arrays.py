"""Array namespaces and the checks that every public function makes on its arrays."""

import sys
from contextlib import nullcontext
from typing import Any

import numpy as np

from finetti.core.errors import InputError, bad_argument


def namespace(*arrays: Any) -> Any:
    """``jax.numpy`` if any argument is a JAX array, else ``numpy``; never imports JAX."""
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(array, jax.Array) for array in arrays):
        return jax.numpy
    return np


def is_concrete(array: Any) -> bool:
    """Whether the values can be looked at now: not inside ``jit``, ``vmap``, ``grad``."""
    jax = sys.modules.get("jax")
    return jax is None or not isinstance(array, jax.core.Tracer)


def _now() -> Any:
    """Inside ``jit`` JAX would trace even an operation on a constant; look at it all the same."""
    return sys.modules["jax"].ensure_compile_time_eval()


def _device(array: Any) -> str:
    return next(iter(array.devices())).platform


def _seen(array: Any) -> tuple[Any, Any]:
    """The array and who looks at it: on a CPU NumPy, which sees the same memory.

    JAX would compile two programs for every new shape.
    """
    xp = namespace(array)
    if xp is not np and array.is_fully_addressable and _device(array) == "cpu":
        return np.asarray(array), np
    return array, xp


def has_nan(array: Any) -> bool:
    """Whether an entry is NaN. Values inside a JAX transformation cannot be seen, and are not."""
    return _has(array, "isnan")


def has_infinity(array: Any) -> bool:
    """Whether an entry is infinite, where that can be seen as in `has_nan`."""
    return _has(array, "isinf")


def _has(array: Any, kind: str) -> bool:
    if not is_concrete(array):
        return False
    array, xp = _seen(array)
    with nullcontext() if xp is np else _now():
        return bool(getattr(xp, kind)(array).any())


def check_finite(array: Any, argument: str, owner: str) -> None:
    """Refuse NaN and infinity. Values inside a JAX transformation cannot be seen and pass."""
    if not is_concrete(array):
        return
    array, xp = _seen(array)
    with nullcontext() if xp is np else _now():
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
