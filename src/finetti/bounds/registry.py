"""Finds the bounds: every final `Bound` of the subpackages of ``finetti.bounds``. No JAX."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from finetti.bounds.base import Bound
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import FinettiError, InputError
from finetti.show.card import Card, Table
from finetti.show.shown import Shown

_PAPERS = ("E", "S", "R", "")


def _order(bound: type[Bound]) -> tuple[int, list[str | int]]:
    parts = re.split(r"(\d+)", bound.name.lower())
    return _PAPERS.index(bound.paper), [int(p) if p.isdigit() else p for p in parts]


@dataclass(frozen=True)
class Registry(Shown):
    """All bounds, in the order of the papers."""

    bounds: tuple[type[Bound], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", tuple(sorted(self.bounds, key=_order)))
        names = [bound.name.lower() for bound in self.bounds]
        for name in names:
            if names.count(name) > 1:
                raise FinettiError(f"Two bounds are called {name}. Rename one of them.")

    def __iter__(self) -> Iterator[type[Bound]]:
        return iter(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.strip().lower() in self._by_name

    @property
    def _by_name(self) -> dict[str, type[Bound]]:
        return {bound.name.lower(): bound for bound in self.bounds}

    def get(self, name: str) -> type[Bound]:
        """The bound of this name; upper and lower case do not matter."""
        known = self._by_name
        wanted = name.strip().lower()
        if wanted in known:
            return known[wanted]
        near = [known[each].name for each in get_close_matches(wanted, known, n=3, cutoff=0.5)]
        advice = f"The nearest: {', '.join(near)}." if near else "See `finetti bound --list`."
        raise FinettiError(f"There is no bound {name!r}. {advice}")

    def search(self, words: Sequence[str]) -> "Registry":
        """The bounds with all ``words`` in their name, title, statement or quantity."""
        wanted = " ".join(words).lower().split()

        def text(bound: type[Bound]) -> str:
            return f"{bound.name} {bound.title} {bound.statement} {bound.quantity}".lower()

        return Registry(tuple(b for b in self.bounds if all(word in text(b) for word in wanted)))

    def __card__(self) -> Card:
        columns = ("name", "statement", "kind")
        rows = tuple((b.name, b.statement, b.derived_kind) for b in self)
        return Card(f"{len(self)} bounds", tables=(Table("", columns, rows),))


def load_bounds(package: str = "finetti.bounds") -> Registry:
    """The subclasses of `Bound` with a name under ``package``, each where it is defined.

    >>> load_bounds().get("S-thm-A.17").citation
    'Theorem A.17, edelman2022'
    """
    found = []
    path = importlib.import_module(package).__path__
    for info in pkgutil.walk_packages(path, package + "."):
        for member in vars(importlib.import_module(info.name)).values():
            named = inspect.isclass(member) and issubclass(member, Bound) and "name" in vars(member)
            if named and member.__module__ == info.name:
                found.append(member)
    return Registry(tuple(found))


def build_bounds(
    chosen: Sequence[type[Bound]], settings: BoundSettings
) -> list[tuple[Bound, BoundSettings]]:
    """Every chosen bound, and the settings as it read them; a norm that none reads is refused."""
    built = []
    for each in chosen:
        read = replace(settings)
        built.append((each.from_settings(read), read))
        if len(chosen) == 1:
            read.check_used(each.name)
    refuse_unread([read.unread for _, read in built])
    return built


def refuse_unread(unread: Sequence[frozenset[str]]) -> None:
    """Refuse a norm that none of several bounds reads."""
    nobodys = frozenset.intersection(*unread)
    if nobodys:
        raise InputError(f"None of these bounds has a norm called {min(nobodys)!r}.")
