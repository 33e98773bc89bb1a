"""Descriptions: a field says what it holds, and with that how it is checked and read."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Self

from finetti.bounds.checks import Check, Checked, checked, one_of
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import bad_argument
from finetti.core.numbers import as_norm, as_positive, as_whole

READ = "read"
Read = Callable[[BoundSettings, str, Any], Any]  # settings, the field's name, the bound's class


class Description(Checked):
    """A frozen dataclass that settings can describe; a field without a setting is the default."""

    @classmethod
    def from_settings(cls, settings: BoundSettings, bound: Any = None) -> Self:
        """With the sizes and norms given by name, for a ``bound`` or as one."""
        reads = {each.name: each.metadata.get(READ) for each in fields(cls)}
        asks = bound or cls
        return cls(**{name: read(settings, name, asks) for name, read in reads.items() if read})


def setting(
    default: Any = MISSING,
    check: Check = lambda value, name, owner: value,
    read: Read | None = None,
    norm: bool = False,
) -> Any:
    """Anything that is in the settings by the name of the field, or found by ``read``.

    A ``norm`` is any size that `sensitivity` should vary by 10 %.
    """
    read = read or (lambda settings, name, bound: settings.value(name, default))
    return checked(check, default, read=read, norm=norm)


def number(default: float | None, check: Check = as_positive) -> Any:
    """A number in the norms by the name of the field; None if it may be left out."""
    if default is None:
        return setting(None, check)
    return setting(default, check, lambda settings, name, _: settings.norm(name, default))


def norm(
    default: float | None, check: Check = as_norm, *, like: str = "", unset: float | None = None
) -> Any:
    """A norm ≥ 0; settings without it take the default, that of ``like``, or ``unset``."""
    if default is None:
        return setting(None, check, norm=True)
    other = default if unset is None else unset

    def read(settings: BoundSettings, name: str, bound: Any) -> float:
        return settings.norm(name, settings.norm(like) if like else other)

    return setting(default, check, read, norm=True)


def size(source: str, default: Any = MISSING) -> Any:
    """A whole number ≥ 1: what the settings have as ``source``, as "width"."""
    return setting(default, as_whole, lambda settings, *_: getattr(settings, source))


def resolution() -> Any:
    """ε > 0, 0.1 by default."""
    return setting(0.1, as_positive, lambda settings, *_: settings.resolution)


def choice(default: str, *others: str, read: Read | None = None) -> Any:
    """One of some words, the first by default."""
    return setting(default, one_of(default, *others), read)


def flag(default: bool, source: str = "") -> Any:
    """Yes or no, by its own name or by ``source``, which several may share."""
    return setting(
        default,
        lambda value, name, owner: bool(value),
        lambda settings, name, bound: settings.value(source or name, default),
    )


def part(part: type[Description]) -> Any:
    """A description inside the description."""
    return setting(read=lambda settings, _, bound: part.from_settings(settings, bound))


def parts(
    part: type[Description], whose: str = "", check: Check | None = None, default: Any = MISSING
) -> Any:
    """Descriptions of the layers (or heads): alike, or one by one in a list of the settings.

    Args:
        part: the class of each.
        whose: what has them; the bound if it is not said.
        check: of the tuple; by default that all are of the class.
        default: without settings.
    """

    def all_are_parts(value: Any, name: str, owner: str) -> Any:
        parts = tuple(value)
        if not parts or not all(isinstance(each, part) for each in parts):
            raise bad_argument(name, owner, f"one {part.__name__} per {name[:-1]}", parts)
        return parts

    def read(settings: BoundSettings, name: str, bound: Any) -> Any:
        owner = f"A {name[:-1]} of {whose or bound.name}"
        return settings.each(name, getattr(settings, f"n_{name}"), part.from_settings, owner)

    return setting(default, check or all_are_parts, read)
