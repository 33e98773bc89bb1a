"""Frozen dataclasses whose fields say once how they are checked."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, cast, dataclass_transform

from finetti.core.arguments import as_real
from finetti.core.errors import bad_argument

CHECK = "check"  # in a field's metadata
Check = Callable[[Any, str, str], Any]  # value, its name, its owner ↦ the value as it is kept


def checked(check: Check, default: Any = MISSING, **metadata: Any) -> Any:
    """A field that is kept as ``check`` gives it; None is let through where it is the default."""
    return field(default=default, metadata={CHECK: check, **metadata})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Checked:
    """Its subclasses are frozen dataclasses, without a decorator, that check `checked` fields."""

    def __init_subclass__(cls, *, kw_only: bool = False, eq: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(frozen=True, kw_only=kw_only, eq=eq)(cls)

    def __post_init__(self) -> None:
        for each in fields(cast("Any", self)):
            value, check = getattr(self, each.name), each.metadata.get(CHECK)
            if check is not None and not (value is None and each.default is None):
                kept = check(value, each.name, type(self).__name__)
                object.__setattr__(self, each.name, kept)


def real(requirement: str, holds: Callable[[float], bool]) -> Check:
    """The check for a number of which ``holds`` is true, which is the ``requirement`` in words."""

    def check(value: Any, name: str, owner: str) -> float:
        number = as_real(value, name, owner, requirement)
        if not holds(number):
            raise bad_argument(name, owner, requirement, value)
        return number

    return check


def one_of(*words: str) -> Check:
    """The check that a value is one of ``words``."""
    wanted = ", ".join(map(repr, words)) if len(words) > 2 else " or ".join(f'"{w}"' for w in words)

    def check(value: Any, name: str, owner: str) -> Any:
        if value not in words:
            raise bad_argument(name, owner, wanted, repr(value))
        return value

    return check
