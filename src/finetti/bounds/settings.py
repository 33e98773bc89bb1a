"""The settings of a command line, from which each bound builds its description."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from finetti.bounds.checks import Checked, checked
from finetti.core.errors import InputError, bad_argument
from finetti.core.forms import Form, check_form
from finetti.core.numbers import as_norm, as_positive, as_whole

MAX_PARTS = 10_000  # layers, or heads with norms of their own: one by one they take seconds
_SHARED = "width / n_heads"  # read as a norm is, so that layers tell their network


def _refuse_many(name: str, count: int) -> None:
    if count > MAX_PARTS:
        raise bad_argument(f"n_{name}", "BoundSettings", f"at most {MAX_PARTS}", count)


class BoundSettings(Checked):
    """Sizes and norms by name, as a user gives them without writing Python.

    A bound reads what it needs in `Bound.from_settings`; `check_used` then refuses what nobody
    read, so that a misspelled norm never passes for the default.

    Args:
        n_layers: how many layers; at most 10 000.
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

    n_layers: int = checked(as_whole, 1)
    width: int = checked(as_whole, 64)
    n_heads: int = checked(as_whole, 1)
    head_dimension: int | None = checked(as_whole, None)
    resolution: float = checked(as_positive, 0.1)
    form: Form = "derived"
    norms: Mapping[str, Any] = field(default_factory=dict)
    # Of one layer or head: the network's settings, where what it reads counts as read, too, and
    # the names of its own norms, which must be read.
    _parent: "BoundSettings | None" = field(default=None, repr=False, compare=False)
    _own: frozenset[str] | None = field(default=None, repr=False, compare=False)
    _used: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_form(self.form, "BoundSettings")
        _refuse_many("layers", self.n_layers)
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
        if self._parent is not None:
            self._parent._mark(name)

    def each(
        self, name: str, count: int, read: "Callable[[BoundSettings], Any]", owner: str
    ) -> tuple[Any, ...]:
        """What ``read`` gives for every layer (or head): those of the list ``name``, else alike.

        Entries of the list override the common norms, and ``owner`` has to read all of them.
        """
        _refuse_many(name, count)
        given = self.value(name)
        common = {key: value for key, value in self.norms.items() if key != name}
        if given is None:
            given = [{}] * count
        entries = given if isinstance(given, list | tuple) else None
        if entries is None or not all(isinstance(entry, Mapping) for entry in entries):
            raise bad_argument("norms", "BoundSettings", f"{name} as a list of mappings", given)
        if len(entries) != count:
            wanted = f"{name} as a list of {count} mappings"
            raise bad_argument("norms", "BoundSettings", wanted, len(entries))
        found = []
        for entry in entries:
            part = replace(self, norms={**common, **entry}, _parent=self, _own=frozenset(entry))
            found.append(read(part))
            part.check_used(owner)
        return tuple(found)

    @property
    def read(self) -> tuple[str, ...]:
        """The norms that were asked for so far, by name."""
        return tuple(sorted(self._used - {_SHARED}))

    @property
    def unread(self) -> frozenset[str]:
        """The norms that nobody has read so far."""
        return (frozenset(self.norms) if self._own is None else self._own) - self._used

    def check_used(self, owner: str) -> None:
        """Refuse norms that ``owner`` did not read."""
        if self.unread:
            known = ", ".join(self.read) or "none"
            raise InputError(f"{owner} has no norm called {min(self.unread)!r}. It reads: {known}.")
