"""Things with names and papers, in an order, found by name, glob or words."""

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, ClassVar, Generic, Self, TypeVar

from finetti.core.errors import FinettiError
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

Entry = TypeVar("Entry")


@dataclass(frozen=True, repr=False)
class Catalog(Displayable, Generic[Entry]):
    """Entries in the order of their papers, then by name with 4.2 before 4.10.

    A subclass says what an entry is called (``noun``), which of its attributes is its name
    (``key``), which ones are searched for words (``texts``) and shown (``columns``), and which
    command lists all of them. Upper and lower case do not matter.
    """

    entries: tuple[Entry, ...]

    noun: ClassVar[str]
    key: ClassVar[str]
    texts: ClassVar[tuple[str, ...]]
    columns: ClassVar[dict[str, str]]  # title → attribute
    command: ClassVar[str]
    papers: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=self._order)))
        names = [self._name(entry).lower() for entry in self]
        for entry in self:
            if names.count(self._name(entry).lower()) > 1:
                twice = f"Two {self.noun}s have the {self.key} {self._name(entry)}"
                raise FinettiError(f"{twice}. Rename one of them.")

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.strip().lower() in self._by_name

    def __getitem__(self, name: str) -> Entry:
        """The entry of this name."""
        found = self._by_name.get(name.strip().lower())
        if found is None:
            raise FinettiError(f"Unknown {self.noun} {name!r}. {self._advice(name)}")
        return found

    def __repr__(self) -> str:
        entries: tuple[Any, ...] = self.entries
        counts = Counter(each.paper or "others" for each in entries)
        parts = ", ".join(f"{paper} {count}" for paper, count in counts.items())
        return f"<{len(self)} {self.noun}{'' if len(self) == 1 else 's'}: {parts}>"

    def _name(self, entry: Any) -> str:
        return getattr(entry, self.key)

    def _order(self, entry: Any) -> tuple[int, list[str | int]]:
        parts = re.split(r"(\d+)", self._name(entry).lower())
        return self.papers.index(entry.paper), [int(p) if p.isdigit() else p for p in parts]

    @property
    def _by_name(self) -> dict[str, Entry]:
        return {self._name(entry).lower(): entry for entry in self}

    def select(self, pattern: str) -> Self:
        """The entries that match any part of a comma-separated ``pattern``.

        A part gives names, globs (``E-*``) or beginnings of names; the first of these that matches
        counts, so that ``E-prop-4.1`` does not also mean ``E-prop-4.10``. Otherwise it means the
        entries with all its words in their texts.
        """
        parts = [part.split() for part in pattern.split(",") if part.strip()]
        if not parts:
            raise FinettiError(f"The pattern is empty. {self._advice('')}")
        chosen = {self._name(each): each for words in parts for each in self._matching(words)}
        return type(self)(tuple(chosen.values()))

    def _matching(self, words: list[str]) -> list[Entry]:
        named = [self._named(word.lower()) for word in words]
        if all(named):
            return [entry for found in named for entry in found]
        found = []
        for entry in self:
            text = " ".join(getattr(entry, name) for name in self.texts).lower()
            if all(word.lower() in text for word in words):
                found.append(entry)
        if not found:
            text = " ".join(words)
            raise FinettiError(f"No {self.noun} matches {text!r}. {self._advice(text)}")
        return found

    def _named(self, wanted: str) -> list[Entry]:
        """By glob, by the whole name, or else by its beginning."""
        known = self._by_name
        if any(sign in wanted for sign in "*?["):
            return [entry for name, entry in known.items() if fnmatchcase(name, wanted)]
        if wanted in known:
            return [known[wanted]]
        return [entry for name, entry in known.items() if name.startswith(wanted)]

    def _advice(self, wanted: str) -> str:
        if not len(self):
            return f"The list of {self.noun}s is empty."
        known = self._by_name
        near = get_close_matches(wanted.strip("* ").lower(), known, n=3, cutoff=0.5)
        if not near:
            return f"`{self.command}` lists all {self.noun}s."
        several = "one of " if len(near) > 1 else ""
        return f"Did you mean {several}{', '.join(self._name(known[name]) for name in near)}?"

    def __card__(self) -> Card:
        rows = tuple(tuple(getattr(e, name) for name in self.columns.values()) for e in self)
        title = f"{len(self)} {self.noun}{'' if len(self) == 1 else 's'}"
        return Card(title, tables=(Table("", tuple(self.columns), rows),))


def import_modules(package: str) -> Iterator[ModuleType]:
    """All modules below ``package``; one that cannot be imported is an error, never skipped."""
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        yield importlib.import_module(info.name)
