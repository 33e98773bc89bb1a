"""Finds the bounds: every final `Bound` of the subpackages of ``finetti.bounds``. No JAX."""

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from finetti.bounds.base import Bound
from finetti.bounds.settings import BoundSettings
from finetti.core.errors import InputError
from finetti.show.catalog import Catalog


class Registry(Catalog[type[Bound]]):
    """All bounds."""

    noun, key, command = "bound", "name", "finetti bound --list"
    texts = ("name", "title", "statement", "quantity")
    columns: ClassVar = {"name": "name", "statement": "statement", "kind": "derived_kind"}
    papers = ("E", "S", "R", "F", "")


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
