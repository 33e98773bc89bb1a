"""Finds the claims: every `Claim` in a module of a subpackage of ``finetti.claims``."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import ClassVar

from finetti.claims.bibliography import PAPERS
from finetti.claims.claim import Claim
from finetti.show.catalog import Catalog


class Ledger(Catalog[Claim]):
    """All claims."""

    noun, key, command = "claim", "id", "finetti claims"
    texts = ("id", "title", "statement")
    columns: ClassVar = {
        "id": "id",
        "claim": "title",
        "source": "citation",
        "expected": "expected",
    }
    papers = tuple(PAPERS)

    @property
    def false_alarm(self) -> float:
        """An upper bound on the probability that any true claim turns red by chance."""
        return sum(claim.false_alarm for claim in self)

    def of_paper(self, paper: str) -> "Ledger":
        """The claims of one paper: E, S or R; F are our own."""
        return Ledger(tuple(claim for claim in self if claim.paper == paper))


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    """All modules under ``package``; one that cannot be imported is an error, never skipped."""
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        yield module
        if info.ispkg:
            yield from _modules(module)


def load_ledger(package: str = "finetti.claims") -> Ledger:
    """The claims in the subpackages of ``package`` (one subpackage per paper).

    Loads no JAX: a claim imports what it needs when it runs.
    """
    root = importlib.import_module(package)
    claims: dict[int, Claim] = {}  # by identity: one may import another's, but not define it again
    for info in pkgutil.iter_modules(root.__path__, root.__name__ + "."):
        if info.ispkg:
            for module in _modules(importlib.import_module(info.name)):
                found = (each for each in vars(module).values() if isinstance(each, Claim))
                claims |= {id(claim): claim for claim in found}
    return Ledger(tuple(claims.values()))
