"""Wrong versions for controls: a right function goes in, one that is off comes out.

They stand in for a formula of the package while a claim runs (`Control.breaks`). Only functions
that claims call themselves are exchanged, never one inside of a compiled program: a program that
was compiled with the wrong version would outlive the control.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

WrongMaker = Callable[[Any], Any]


@contextmanager
def broken(breaks: Mapping[str, WrongMaker]) -> Iterator[None]:
    """Each ``package.module.Name`` is what its maker makes of it, until this ends.

    >>> import math
    >>> with broken({"math.sqrt": times(1.5)}):
    ...     math.sqrt(4)
    3.0
    >>> math.sqrt(4)
    2.0
    """
    with ExitStack() as stack:
        for path, make in breaks.items():
            place, name = path.rsplit(".", 1)
            owner = pkgutil.resolve_name(place)
            stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))
        yield


def times(factor: float) -> WrongMaker:
    """Numbers, arrays, or tuples of them, multiplied."""

    def make(right: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            found = right(*given, **named)
            if isinstance(found, tuple):
                return tuple(factor * each for each in found)
            return factor * found

        return wrong

    return make


def log_plus(factor: float) -> WrongMaker:
    """Logarithms of numbers that are multiplied; of a tuple the first."""

    def make(right: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            found = right(*given, **named)
            if isinstance(found, tuple):
                return (found[0] + np.log(factor), *found[1:])
            return found + np.log(factor)

        return wrong

    return make


def looser(factor: float) -> WrongMaker:
    """A lemma whose bound is multiplied: random draws do not mind, a tight instance does."""

    def make(right: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            found = right(*given, **named)
            return type(found)(
                found.measured, factor * found.bound, found.citation, form=found.form
            )

        return wrong

    return make


def louder(place: int) -> WrongMaker:
    """Attention that weighs later tokens more: the argument at ``place`` grows along its tokens."""

    def make(right: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            tokens = np.asarray(given[place])
            ramp = np.linspace(1.0, 1.1, tokens.shape[-2])[:, None]
            return right(*given[:place], tokens * ramp, *given[place + 1 :], **named)

        return wrong

    return make


def dimmer(factor: float) -> WrongMaker:
    """Compiled rules whose queries are shorter, so that the score R of the relevant bits is."""

    def make(right: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            compiled = right(*given, **named)
            return compiled.changed(query=factor * compiled.blocks[0].query)

        return wrong

    return make
