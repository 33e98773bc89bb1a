"""A class or function that builds a model, with its options; or a ready instance."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from finetti.core.errors import InputError, UnsupportedError

FROM_SEED = ("seed", "random_state")  # filled in, unless an option says otherwise
IGNORED = ("source", "parent", "name")  # ours, and two of Flax's own


@dataclass(frozen=True)
class Purpose:
    """Requirements of a command on a model.

    Args:
        noun: what errors call the model.
        forms: the forms that the command takes, for the error about other things.
        sizes: names of the sizes that a factory may ask for.
        measure: from a batch of inputs to these sizes.
        plain_functions: whether a function is called with the inputs; else it is a factory.
    """

    noun: str
    forms: str
    sizes: tuple[str, ...] = ()
    measure: Callable[..., dict[str, int]] = field(default=lambda *inputs: {})
    plain_functions: bool = False


@dataclass(frozen=True, eq=False)
class Factory:
    """A class or function that builds a model, with its options; or a ready instance.

    Args:
        name: as the user wrote it; errors begin with it.
        found: a class, a function or an instance.
        options: keyword arguments of the class or function.
        purpose: of the command.
    """

    name: str
    found: Any
    options: Mapping[str, Any]
    purpose: Purpose

    @property
    def label(self) -> str:
        """The model as errors name it."""
        return f"The {self.purpose.noun} {self.name}"

    @property
    def is_factory(self) -> bool:
        """Whether ``found`` is called for each new model."""
        if inspect.isclass(self.found):
            return True
        return is_plain_function(self.found) and not self.purpose.plain_functions

    def build(self, *inputs: Any, **supplied: Any) -> Any:
        """A new model; the factory gets what its signature names, sizes of the inputs included."""
        if not self.is_factory:
            return self.found
        supplied |= self.sizes(*inputs)
        named = parameters(self.found)[0]
        given = {name: value for name, value in supplied.items() if name in named}
        given |= self.options
        for name, default in named.items():
            if default is inspect.Parameter.empty and name not in given:
                filled = ", ".join([*self.purpose.sizes, "key", "seed"])
                raise InputError(
                    f"{self.label} is called to make a model, before there are inputs, and its "
                    f"argument {name!r} has no value. Filled in are {filled}; give others a "
                    "default, or pass them as options."
                )
        return self.found(**given)

    def sizes(self, *inputs: Any) -> dict[str, int]:
        """The sizes of a batch of inputs, by the names that a factory may ask for."""
        return self.purpose.measure(*inputs) if inputs else {}

    def make(self, key: Any, *example: Any) -> Any:
        """A new model, with all that a factory may ask for; randomness comes from the key."""
        supplied = {"key": key, "seed": 0, "random_state": 0}
        if "flax.nnx" in sys.modules:
            supplied["rngs"] = sys.modules["flax.nnx"].Rngs(key)
        return self.build(*example, **supplied)

    def sample(self, *example: Any) -> Any:
        """Build one model to recognize its form, under a trace, so that no weights are drawn."""
        built = []
        if not self.is_factory:
            return self.found
        import jax

        jax.eval_shape(lambda key: built.append(self.make(key, *example)), jax.random.key(0))
        return built[0]

    def all_options(self) -> dict[str, Any]:
        """The options, and the defaults of the others as far as they are plain data."""
        if not self.is_factory:
            return dict(self.options)
        defaults = {
            name: default
            for name, default in parameters(self.found)[0].items()
            if name not in (*self._not_options, *FROM_SEED)
            and isinstance(default, bool | int | float | str)
        }
        return {**defaults, **self.options}

    @property
    def known_options(self) -> set[str]:
        """Names of the options that the class or function takes."""
        signature = parameters(self.found)[0] if self.is_factory else {}
        return {*self.options, *(name for name in signature if name not in self._not_options)}

    def refuse_unknown(self, options: Iterable[str], others: Iterable[str] = ()) -> None:
        """Refuse options that neither the factory takes nor the command (``others``)."""
        known = {*self.known_options, *others}
        unknown = sorted(set(options) - known)
        if unknown:
            listed = ", ".join(sorted(known)) or "none"
            raise InputError(f"{self.label} has no option {unknown[0]!r}. It has: {listed}.")

    @property
    def _not_options(self) -> tuple[str, ...]:
        return "key", "rngs", *self.purpose.sizes, *IGNORED


def make_factory(
    name: str, found: Any, options: Mapping[str, Any], purpose: Purpose, reserved: Iterable[str]
) -> Factory:
    """The factory with the options that its signature names.

    A factory that accepts any keyword gets all but those that are ``reserved`` for the command.
    """
    names, accepts_any = parameters(found) if callable(found) else ({}, False)
    own = {
        option: value
        for option, value in options.items()
        if option in names or (accepts_any and option not in tuple(reserved))
    }
    filled = [option for option in own if option in ("key", "rngs", *purpose.sizes)]
    if filled:
        raise InputError(
            f"The option {filled[0]!r} of a {purpose.noun} is filled in for each trial. "
            "Leave it out."
        )
    return Factory(name, found, own, purpose)


def is_plain_function(thing: Any) -> bool:
    """Whether a thing is a function, builtin or partial; objects that can be called are not."""
    return inspect.isroutine(thing) or isinstance(thing, functools.partial)


def parameters(function: Any) -> tuple[dict[str, Any], bool]:
    """Name → default (or `inspect.Parameter.empty`), and whether any keyword is accepted.

    >>> parameters(lambda key, width=3, **others: None)[1]
    True
    """
    # A metaclass (that of nnx, for example) may hide the arguments of a class; __init__ has them.
    bound = inspect.isclass(function) and inspect.isfunction(function.__init__)
    try:
        signature = inspect.signature(function.__init__ if bound else function)
    except (TypeError, ValueError):  # compiled code may say nothing
        return {}, True
    found = list(signature.parameters.values())[bound:]
    named = {each.name: each.default for each in found if each.kind not in _UNNAMED}
    return named, any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found)


_UNNAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


def count_arguments(function: Any) -> int:
    """Arguments that must be given by position.

    >>> count_arguments(lambda keys, values, query, scale=1.0: None)
    3
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # of some builtins
        name = getattr(function, "__name__", type(function).__name__)
        raise UnsupportedError(
            f"{name} does not say which arguments it takes. Call it inside a function of your own."
        ) from error
    return sum(each.kind in kinds and each.default is each.empty for each in given)
