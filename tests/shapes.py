"""Shapes in signatures are checked while tests run: beartype, through jaxtyping's import hook."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

import beartype
import jaxtyping
from jaxtyping import jaxtyped


def has_shape(hint: Any) -> bool:
    """Whether a type names the shape of an array, by itself or inside."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(has_shape, get_args(hint)))


def wrap_shaped(*, typechecker: Callable[..., Any]) -> Callable[..., Any]:
    """``jaxtyping.jaxtyped``, which the hook puts around everything, for what names a shape only.

    A function inside of another one is wrapped at every call of that one, and most have no shapes:
    that took a tenth of the time of tests that trace.
    """
    wrap = jaxtyped(typechecker=typechecker)

    def decorate(wrapped: Any) -> Any:
        function = inspect.unwrap(getattr(wrapped, "__func__", wrapped))
        hints = getattr(function, "__annotations__", {}).values()
        is_plain = inspect.isfunction(function) and not any(map(has_shape, hints))
        return wrapped if is_plain else wrap(wrapped)

    return decorate


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
