"""What the library says when it cannot go on: what is wrong, why, and what to do next."""

import sys
import warnings
from typing import Any

from finetti.core.plain_data import clean_text

# Whose frames are not the user's.
_INSIDE = ("finetti", "jax", "jaxtyping", "equinox", "flax", "beartype")


class FinettiError(Exception):
    """Anything a user can cause and fix: one sentence at the command line, exit code 2."""


class InputError(FinettiError, ValueError):
    """An argument has a value or a shape that the call cannot accept.

    Of a single argument ``argument`` is the name and ``problem`` the rest of the sentence.
    """

    argument: str = ""
    problem: str = ""


class UnsupportedError(FinettiError, TypeError):
    """The object asked for does not exist: a feature map of a kernel without one, for example."""


def bad_argument(
    argument: str, owner: str, requirement: str, got: Any, advice: str = ""
) -> InputError:
    """The error for one argument, in scikit-learn's sentence.

    >>> print(bad_argument("ridge", "ConditionalMean", "a positive number", -1.0))
    The `ridge` argument of ConditionalMean must be a positive number. Got -1.0 instead.
    """
    problem = f"must be {requirement}. Got {got} instead. {advice}".rstrip()
    error = InputError(f"The `{argument}` argument of {owner} {problem}")
    error.argument, error.problem = argument, problem
    return error


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside the package that the call came from."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(clean_text(message), category, stacklevel=level)
