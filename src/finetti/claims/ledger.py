"""Finds the claims: every `Claim` in a module of a subpackage of ``finetti.claims``."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import ClassVar

from finetti.claims.bibliography import PAPERS
from finetti.claims.claim import CheckMethod, Claim
from finetti.core.errors import FinettiError
from finetti.display.catalog import Catalog, import_modules


class Ledger(Catalog[Claim]):
    """All claims."""

    noun, key, command = "claim", "id", "finetti claims"
    texts = ("id", "title", "statement")
    columns: ClassVar = {
        "id": "id",
        "claim": "title",
        "source": "citation",
        "check": "check_words",
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

    def checked_as(self, check: CheckMethod | str) -> "Ledger":
        """The claims that are checked in one way, as by ``simulation``."""
        return Ledger(tuple(claim for claim in self if claim.check == check))

    def bases(self, claim: Claim) -> tuple[Claim, ...]:
        """The claims that ``claim`` rests on."""
        return tuple(self[each] for each in claim.rests_on)


@cache
def load_ledger(package: str = "finetti.claims") -> Ledger:
    """The claims in the subpackages of ``package`` (one subpackage per paper).

    Loads no JAX: a claim imports what it needs when it runs. A process loads them once.
    """
    root = importlib.import_module(package)
    # By identity: a module may import another's claim, but not define it again.
    found: dict[int, tuple[Claim, str]] = {}
    for info in pkgutil.iter_modules(root.__path__, root.__name__ + "."):
        for module in import_modules(info.name) if info.ispkg else ():
            for claim in _declared(module):
                found.setdefault(id(claim), (claim, module.__name__))
    claims = (replace(claim, module=claim.module or name) for claim, name in found.values())
    ledger = Ledger(tuple(row for claim in claims for row in claim.rows))
    _check_bases(ledger)
    return ledger


def _declared(module: ModuleType) -> Iterator[Claim]:
    """The claims among the variables of ``module``, and in its tuple ``CLAIMS``."""
    for each in (*vars(module).values(), *getattr(module, "CLAIMS", ())):
        if isinstance(each, Claim):
            yield each


def _check_bases(ledger: Ledger) -> None:
    """What a claim rests on must be measured."""
    for claim in ledger:
        for base in claim.rests_on:
            if base not in ledger:
                raise FinettiError(f"{claim.id} rests on {base}, which is no claim.")
            if ledger[base].rests_on:
                raise FinettiError(f"{claim.id} rests on {base}, which measures nothing itself.")
