"""Descriptions of classes of functions: frozen dataclasses whose fields are checked and read.

A field says once what it holds: how it is checked, which settings give it, and its default.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass, replace
from typing import Any, Self, cast

from finetti.core.arguments import Form, as_norm, as_positive, as_whole, check_form
from finetti.core.checked_fields import Check, Checked, checked, one_of
from finetti.core.errors import InputError, bad_argument

MAX_PARTS = 10_000  # layers, or heads with norms of their own: one by one they take seconds
UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()  # no value was given
# What a field's metadata holds beside its check: that it is a norm, which `sensitivities` varies;
# how settings give it, and by which names; the field whose value is its default, else which
# number; the class of its parts.
NORM, READ, NAMES, LIKE, OF = "norm", "read", "names", "like", "of"


class BoundSettings(Checked):
    """Sizes and norms by name, as a user gives them without writing Python.

    A bound reads those of its `Description.norm_names`; `Description.check_names` refuses others,
    so that a misspelled norm never passes for the default.

    Args:
        n_layers: how many layers; at most 10 000.
        width: d, the dimension of a token.
        n_heads: H, heads per layer.
        head_dimension: k; width / n_heads by default, rounded up.
        resolution: ε, where a log covering number is asked for.
        form: derived or printed.
        norms: numbers by name, and perhaps ``layers`` (or ``heads``): a list of such mappings.

    >>> settings = BoundSettings(n_layers=2, width=64, n_heads=3, norms={"value_norm": 2.0})
    >>> settings.value("value_norm"), settings.value("score_norm", 1.0), settings.head_width
    (2.0, 1.0, 22)
    """

    n_layers: int = checked(as_whole, 1)
    width: int = checked(as_whole, 64)
    n_heads: int = checked(as_whole, 1)
    head_dimension: int | None = checked(as_whole, None)
    resolution: float = checked(as_positive, 0.1)
    form: Form = "derived"
    norms: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_form(self.form, "BoundSettings")
        if self.n_layers > MAX_PARTS:
            raise bad_argument("n_layers", "BoundSettings", f"at most {MAX_PARTS}", self.n_layers)
        if not isinstance(self.norms, Mapping):
            raise bad_argument(
                "norms", "BoundSettings", "a mapping from names to numbers", self.norms
            )

    @property
    def head_width(self) -> int:
        """k: as given, else ⌈width / n_heads⌉."""
        shared = -(-self.width // self.n_heads)
        return shared if self.head_dimension is None else self.head_dimension

    def value(self, name: str, default: Any = UNSET) -> Any:
        """Anything called ``name`` in the norms: a number, a word, a flag, a list."""
        return self.norms.get(name, default)

    def norm(self, name: str, default: float = 1.0) -> float:
        """The number ≥ 0 called ``name`` in the norms, or the default."""
        return as_norm(self.value(name, default), name, "the norms")

    def each(self, name: str, part: "type[Description]", owner: str) -> tuple[Any, ...]:
        """A ``part`` for every layer (or head): those of the list ``name``, else all alike.

        Entries of the list override the common norms; ``owner`` refuses what no part has.
        """
        count = getattr(self, f"n_{name}")
        if count > MAX_PARTS:
            raise bad_argument(f"n_{name}", "BoundSettings", f"at most {MAX_PARTS}", count)
        common = {key: value for key, value in self.norms.items() if key != name}
        if name not in self.norms:
            return (part.from_settings(self),) * count
        entries = self.norms[name]
        mappings = isinstance(entries, list | tuple)
        if not mappings or not all(isinstance(entry, Mapping) for entry in entries):
            raise bad_argument("norms", "BoundSettings", f"{name} as a list of mappings", entries)
        if len(entries) != count:
            wanted = f"{name} as a list of {count} mappings"
            raise bad_argument("norms", "BoundSettings", wanted, len(entries))
        for entry in entries:
            part.check_names(entry, owner)
        return tuple(
            part.from_settings(replace(self, norms={**common, **entry})) for entry in entries
        )


class Description(Checked):
    """A frozen dataclass that settings can describe; what they do not give is the default."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) is UNSET:
                like, number = each.metadata[LIKE]
                object.__setattr__(self, each.name, getattr(self, like, number))
        super().__post_init__()

    @classmethod
    def from_settings(cls, settings: BoundSettings, bound: Any = None) -> Self:
        """With the sizes and norms given by name, for a ``bound`` or as one."""
        reads = {each.name: each.metadata.get(READ) for each in fields(cls)}
        asks = bound or cls
        found = {name: read(settings, name, asks) for name, read in reads.items() if read}
        return cls(**{name: value for name, value in found.items() if value is not UNSET})

    @classmethod
    def norm_names(cls) -> tuple[str, ...]:
        """The names that it reads of the norms of a `BoundSettings`."""
        names = set()
        for each in fields(cls):
            known = each.metadata
            if READ in known:
                names |= {*known.get(NAMES, (each.name,)), *known.get(LIKE, ())[:1]}
                names |= {*known[OF].norm_names()} if OF in known else {*()}
        return tuple(sorted(names))

    @classmethod
    def check_names(cls, norms: Mapping[str, Any], owner: str) -> None:
        """Refuse norms that the ``owner`` of such a description does not read."""
        unread = {*norms} - {*cls.norm_names()}
        if unread:
            known = ", ".join(cls.norm_names()) or "none"
            raise InputError(f"{owner} has no norm called {min(unread)!r}. It reads: {known}.")


def setting(
    default: Any = MISSING,
    check: Check = lambda value, name, owner: value,
    read: Callable[[BoundSettings, str, Any], Any] | None = None,
    norm: bool = False,
    names: tuple[str, ...] | None = None,
    **metadata: Any,
) -> Any:
    """Anything that is in the settings by the name of the field, or found by ``read``.

    Args:
        default: with and without settings.
        check: gives the value as it is kept.
        read: from settings, the field's name and the bound; `UNSET` where they do not give it.
        norm: whether it is a size that `sensitivities` should vary by 10 %.
        names: which norms ``read`` looks for; that of the field by default.
    """
    read = read or (lambda settings, name, bound: settings.value(name))
    metadata |= {} if names is None else {NAMES: names}
    return checked(check, default, read=read, norm=norm, **metadata)


def number(default: float | None, check: Check = as_positive) -> Any:
    """A number in the norms by the name of the field; None if it may be left out."""
    return setting(default, check)


def norm(default: float | None, check: Check = as_norm, *, like: str = "") -> Any:
    """A norm ≥ 0; by default that called ``like``, if there is one, else the number.

    ``like`` is another field, or only a name in the settings.
    """
    if not like:
        return setting(default, check, norm=True)

    def read(settings: BoundSettings, name: str, bound: Any) -> Any:
        return settings.value(name, settings.value(like))

    return setting(UNSET, check, read, norm=True, like=(like, default))


def size(source: str, default: Any = MISSING) -> Any:
    """A whole number ≥ 1: what the settings have as ``source``, as "width"."""
    return setting(default, as_whole, lambda settings, *_: getattr(settings, source), names=())


def width_or_own() -> Any:
    """A whole number ≥ 1 in the norms by the name of the field; the width if it is not there."""
    return setting(
        check=as_whole, read=lambda settings, name, _: settings.value(name, settings.width)
    )


def resolution() -> Any:
    """ε > 0, 0.1 by default."""
    return setting(0.1, as_positive, lambda settings, *_: settings.resolution, names=())


def choice(
    default: str, *others: str, read: Any = None, names: tuple[str, ...] | None = None
) -> Any:
    """One of some words, the first by default."""
    return setting(default, one_of(default, *others), read, names=names)


def flag(default: bool, source: str = "") -> Any:
    """Yes or no, by its own name or by ``source``, which several may share."""
    return setting(
        default,
        lambda value, name, owner: bool(value),
        lambda settings, name, bound: settings.value(source or name),
        names=(source,) if source else None,
    )


def part(part: type[Description]) -> Any:
    """A description inside the description."""
    return setting(
        read=lambda settings, _, bound: part.from_settings(settings, bound),
        names=part.norm_names(),
    )


def all_are(kind: type, wanted: str = "") -> Check:
    """The check for a tuple of this kind, of one entry at least."""

    def check(value: Any, name: str, owner: str) -> tuple[Any, ...]:
        entries = tuple(value)
        if not entries or not all(isinstance(each, kind) for each in entries):
            raise bad_argument(name, owner, wanted or f"one {kind.__name__} or more", entries)
        return entries

    return check


def parts(part: type[Description], whose: str = "", default: Any = MISSING) -> Any:
    """Descriptions of the layers (or heads): alike, or one by one in a list of the settings.

    Args:
        part: the class of each.
        whose: what has them; the bound if it is not said.
        default: without settings.
    """

    def read(settings: BoundSettings, name: str, bound: Any) -> Any:
        return settings.each(name, part, f"A {name[:-1]} of {whose or bound.name}")

    return setting(default, all_are(part), read, of=part)


def map_norms(
    described: Any,
    change: Callable[[str, float], float],
    skip: Callable[[Any], bool] = lambda described: False,
    path: str = "",
) -> Any:
    """A copy of a description with every norm, at any depth, replaced by ``change(path, norm)``.

    Args:
        described: a description, or a tuple of them; anything else stays as it is.
        change: gets paths such as ``layers[1].value_norm``, counted from 1.
        skip: the descriptions that stay as they are.
        path: of ``described`` in what contains it.
    """
    if isinstance(described, tuple):
        found = tuple(
            map_norms(part, change, skip, f"{path}[{number}]")
            for number, part in enumerate(described, start=1)
        )
        return described if all(map(operator.is_, found, described)) else found
    if not is_dataclass(described) or skip(described):
        return described
    changes = {}
    for each in fields(described):
        before = getattr(described, each.name)
        inside = f"{path}.{each.name}" if path else each.name
        if each.metadata.get(NORM) and before is not None:
            after = change(inside, before)
        else:
            after = map_norms(before, change, skip, inside)
        if after is not before:
            changes[each.name] = after
    return replace(cast("Any", described), **changes) if changes else described
