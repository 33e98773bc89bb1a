"""Finds the bounds: every final `Bound` of the subpackages of ``finetti.bounds``. No JAX."""

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from finetti.bounds.bound import Bound, named_bounds
from finetti.bounds.description import BoundSettings
from finetti.core.errors import InputError, bad_argument
from finetti.display.catalog import Catalog


class Registry(Catalog[type[Bound]]):
    """All bounds."""

    noun, key, command = "bound", "name", "finetti bound --list"
    texts = ("name", "title", "statement", "quantity")
    columns: ClassVar = {"name": "name", "statement": "statement", "kind": "derived_kind"}
    papers = ("E", "S", "R", "F", "")


@cache
def load_bounds(package: str = "finetti.bounds") -> Registry:
    """The subclasses of `Bound` with a name under ``package``.

    >>> load_bounds()["S-thm-A.17"].citation
    'Theorem A.17, edelman2022'
    """
    return Registry(named_bounds(package))


def build_bounds(chosen: Sequence[type[Bound]], settings: BoundSettings) -> list[Bound]:
    """Every chosen bound of what ``settings`` describe; a norm that none reads is refused."""
    check_norms(chosen, settings, "build_bounds")
    return [each.from_settings(settings) for each in chosen]


def check_norms(chosen: Sequence[type[Bound]], settings: BoundSettings, owner: str) -> None:
    """Refuse a choice of no bounds, and a norm that none of them reads."""
    if not chosen:
        raise bad_argument("bounds", owner, "at least one bound", "none")
    if len(chosen) == 1:
        chosen[0].check_names(settings.norms, chosen[0].name)
    unread = frozenset.intersection(*(unread_norms(each, settings) for each in chosen))
    if unread:
        raise InputError(f"None of these bounds has a norm called {min(unread)!r}.")


def unread_norms(theorem: type[Bound], settings: BoundSettings) -> frozenset[str]:
    """The norms of ``settings`` that one bound does not have, as another one may."""
    return frozenset(settings.norms) - {*theorem.norm_names()}
