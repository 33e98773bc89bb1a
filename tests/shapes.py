"""Shapes in signatures are checked while tests run: beartype, through jaxtyping's import hook."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

import beartype
import jaxtyping


def has_shape(hint: Any) -> bool:
    """Whether a type names the shape of an array, by itself or inside."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(has_shape, get_args(hint)))


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Beartype for what has a shape, after the call.

    jaxtyping asks for two checks: of the arguments before a call (returns Any), and of all after
    it. The first is left out: what a function refuses, it refuses in its own words.
    """
    hints = inspect.get_annotations(function)
    shapes = {name: hint for name, hint in hints.items() if has_shape(hint)}
    if hints.get("return") is Any or not shapes:
        return function
    function.__annotations__ = shapes
    return beartype.beartype(function)
