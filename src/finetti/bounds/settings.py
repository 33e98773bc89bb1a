"""The settings of a command line, from which each bound builds its description."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from finetti.core.errors import InputError, bad_argument
from finetti.core.forms import Form, check_form
from finetti.core.numbers import as_norm, as_positive, as_whole

_SHARED = "width / n_heads"  # read as a norm is, so that layers tell their network


@dataclass(frozen=True)
class BoundSettings:
    """Sizes and norms by name, as a user gives them without writing Python.

    A bound reads what it needs in `Bound.from_settings`; `check_used` then refuses what nobody
    read, so that a misspelled norm never passes for the default.

    Args:
        n_layers: how many layers.
        width: d, the dimension of a token.
        n_heads: H, heads per layer.
        head_dimension: k; width / n_heads by default.
        resolution: ε, where a log covering number is asked for.
        form: derived or printed.
        norms: numbers by name, and perhaps ``layers`` (or ``heads``): a list of such mappings.

    >>> settings = BoundSettings(n_layers=2, width=64, norms={"value_norm": 2.0})
    >>> settings.norm("value_norm"), settings.norm("score_norm"), settings.head_width
    (2.0, 1.0, 64)
    """

    n_layers: int = 1
    width: int = 64
    n_heads: int = 1
    head_dimension: int | None = None
    resolution: float = 0.1
    form: Form = "derived"
    norms: Mapping[str, Any] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("n_layers", "width", "n_heads"):
            object.__setattr__(self, name, as_whole(getattr(self, name), name, "BoundSettings"))
        if self.head_dimension is not None:
            width = as_whole(self.head_dimension, "head_dimension", "BoundSettings")
            object.__setattr__(self, "head_dimension", width)
        as_positive(self.resolution, "resolution", "BoundSettings")
        check_form(self.form, "BoundSettings")
        if not isinstance(self.norms, Mapping):
            raise bad_argument(
                "norms", "BoundSettings", "a mapping from names to numbers", self.norms
            )

    @property
    def head_width(self) -> int:
        """k: as given, else width / n_heads."""
        if self.head_dimension is not None:
            return self.head_dimension
        self._mark(_SHARED)
        if self.width % self.n_heads:
            raise bad_argument(
                "n_heads", "BoundSettings", f"a divisor of the width {self.width}", self.n_heads
            )
        return self.width // self.n_heads

    @property
    def shared_width(self) -> bool:
        """Whether a bound divided the width between the heads."""
        return _SHARED in self._used

    def norm(self, name: str, default: float = 1.0) -> float:
        """The number called ``name`` in the norms, or the default."""
        return as_norm(self.value(name, default), name, "the norms")

    def value(self, name: str, default: Any = None) -> Any:
        """Anything called ``name`` in the norms: a number, a word, a flag, a list."""
        self._mark(name)
        return self.norms.get(name, default)

    def _mark(self, name: str) -> None:
        self._used.add(name)

    def each(self, name: str, count: int) -> "tuple[BoundSettings, ...]":
        """One settings per layer (or head): those of the list ``name``, else all alike.

        Entries of the list override the common norms.
        """
        given = self.value(name)
        common = {key: value for key, value in self.norms.items() if key != name}
        if given is None:
            given = [{}] * count
        entries = given if isinstance(given, list | tuple) else None
        if entries is None or not all(isinstance(entry, Mapping) for entry in entries):
            raise bad_argument(name, "the norms", "a list of mappings", given)
        if len(entries) != count:
            raise bad_argument(name, "the norms", f"a list of {count} mappings", len(entries))
        return tuple(_Part.of(self, {**common, **entry}, set(entry)) for entry in entries)

    @property
    def unread(self) -> frozenset[str]:
        """The norms that nobody has read so far."""
        return frozenset(self.norms) - self._used

    def check_used(self, owner: str) -> None:
        """Refuse norms that ``owner`` did not read."""
        if self.unread:
            known = ", ".join(sorted(self._used - {_SHARED})) or "none"
            raise InputError(f"{owner} has no norm called {min(self.unread)!r}. It reads: {known}.")


@dataclass(frozen=True)
class _Part(BoundSettings):
    """The settings of one layer: what it reads counts as read above, and its own must be."""

    parent: BoundSettings | None = None
    own: frozenset[str] = frozenset()

    @classmethod
    def of(cls, parent: BoundSettings, norms: Mapping[str, Any], own: set[str]) -> "_Part":
        sizes = {
            name: getattr(parent, name)
            for name in ("n_layers", "width", "n_heads", "head_dimension", "resolution", "form")
        }
        return cls(**sizes, norms=norms, parent=parent, own=frozenset(own))

    def _mark(self, name: str) -> None:
        self._used.add(name)
        if self.parent is not None:
            self.parent._mark(name)

    @property
    def unread(self) -> frozenset[str]:
        """Of this layer's own."""
        return self.own - self._used
