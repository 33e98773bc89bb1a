"""What a reference stands for, a factory or a thing, and the options that it is called with."""

import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from finetti.core.errors import InputError

FILLED_IN = ("key", "rngs", "context_length")  # by the probe, never by options
FROM_SEED = ("seed", "random_state")  # likewise, unless an option says otherwise
NOT_OPTIONS = (*FILLED_IN, "source", "parent", "name")  # ours, and two of Flax's own


@dataclass(frozen=True)
class Recipe:
    """A class or function that builds a learner, or the thing itself.

    Args:
        reference: the name it was asked for by.
        found: what the name stands for.
        options: keyword arguments of the class or function.
    """

    reference: str
    found: Any
    options: Mapping[str, Any]

    @property
    def is_factory(self) -> bool:
        """Whether ``found`` is called for each trial; instances of anything are not."""
        made = inspect.isclass(self.found) or inspect.isroutine(self.found)
        return made or isinstance(self.found, functools.partial)

    def build(self, **supplied: Any) -> Any:
        """A new one; of ``supplied`` the factory gets what its signature names."""
        if not self.is_factory:
            return self.found
        named = parameters(self.found)[0].keys() - self.options.keys()
        given = {name: value for name, value in supplied.items() if name in named}
        return self.found(**given, **self.options)

    def all_options(self) -> dict[str, Any]:
        """The options, and the defaults of the others as far as they are plain data."""
        if not self.is_factory:
            return dict(self.options)
        defaults = {
            name: default
            for name, default in parameters(self.found)[0].items()
            if name not in (*NOT_OPTIONS, *FROM_SEED)
            and isinstance(default, bool | int | float | str)
        }
        return {**defaults, **self.options}


def parameters(function: Any) -> tuple[dict[str, Any], bool]:
    """Name → default (or `inspect.Parameter.empty`), and whether any keyword is accepted.

    >>> parameters(lambda key, width=3, **others: None)[1]
    True
    """
    # A metaclass (that of nnx, for example) may hide the arguments of a class; __init__ has them.
    bound = inspect.isclass(function) and inspect.isfunction(function.__init__)
    try:
        signature = inspect.signature(function.__init__ if bound else function)
    except ValueError:  # compiled code may say nothing
        return {}, True
    found = list(signature.parameters.values())[bound:]
    named = {each.name: each.default for each in found if each.kind not in _UNNAMED}
    return named, any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found)


_UNNAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


def options_for(found: Any, options: Mapping[str, Any], training: Iterable[str]) -> dict[str, Any]:
    """Those that the factory's signature names; one that accepts any gets all but ``training``."""
    names, accepts_any = parameters(found) if callable(found) else ({}, False)
    own = {
        name: value
        for name, value in options.items()
        if name in names or (accepts_any and name not in training)
    }
    filled = [name for name in own if name in FILLED_IN]
    if filled:
        raise InputError(
            f"The option {filled[0]!r} of a learner is filled in by the probe. Leave it out."
        )
    return own
