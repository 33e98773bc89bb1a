"""Finds the claims: every `Claim` in a module of a subpackage of ``finetti.claims``."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import ModuleType

from finetti.claims.bibliography import PAPERS
from finetti.claims.claim import Claim
from finetti.core.errors import FinettiError
from finetti.show.card import Card, Table
from finetti.show.shown import Shown


def _order(claim: Claim) -> tuple[int, list[str | int]]:
    """Papers in the order of the bibliography, then ids with 4.2 before 4.10."""
    parts = re.split(r"(\d+)", claim.id.lower())
    return list(PAPERS).index(claim.paper), [int(p) if p.isdigit() else p for p in parts]


@dataclass(frozen=True)
class Ledger(Shown):
    """All claims, in the order of the papers."""

    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", tuple(sorted(self.claims, key=_order)))
        ids = [claim.id.lower() for claim in self.claims]
        for claim in self.claims:
            if ids.count(claim.id.lower()) > 1:
                raise FinettiError(f"Two claims have the id {claim.id}. Rename one of them.")

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def false_alarm(self) -> float:
        """An upper bound on the probability that any true claim turns red by chance."""
        return sum(claim.false_alarm for claim in self.claims)

    def of_paper(self, paper: str) -> "Ledger":
        """The claims of one paper: E, S or R."""
        return Ledger(tuple(claim for claim in self.claims if claim.paper == paper))

    def get(self, claim_id: str) -> Claim:
        """The claim with this id; upper and lower case do not matter."""
        for claim in self.claims:
            if claim.id.lower() == claim_id.strip().lower():
                return claim
        raise FinettiError(f"There is no claim {claim_id!r}. {self._advice(claim_id)}")

    def select(self, pattern: str) -> "Ledger":
        """The claims that match any part of a comma-separated ``pattern``.

        A part names claims, each by an id, a glob (``E-*``) or the beginning of an id; the first of
        these that matches counts, so that ``E-prop-4.1`` does not also mean ``E-prop-4.10``.
        Otherwise it means those with all its words in their id, title or statement.
        """
        parts = [part.split() for part in pattern.split(",") if part.strip()]
        if not parts:
            raise FinettiError(f"The pattern names no claim. {self._advice('')}")
        chosen = {claim.id: claim for words in parts for claim in self._matching(words)}
        return Ledger(tuple(chosen.values()))

    def _with_id(self, part: str) -> list[Claim]:
        """By glob, by the whole id, or else by its beginning."""
        wanted = part.lower()
        names = {claim.id.lower(): claim for claim in self.claims}
        if any(sign in wanted for sign in "*?["):
            return [claim for name, claim in names.items() if fnmatchcase(name, wanted)]
        if wanted in names:
            return [names[wanted]]
        return [claim for name, claim in names.items() if name.startswith(wanted)]

    def _matching(self, words: list[str]) -> list[Claim]:
        named = [self._with_id(word) for word in words]
        if all(named):
            return [claim for found in named for claim in found]
        texts = {c.id: f"{c.id} {c.title} {c.statement}".lower() for c in self}
        found = [c for c in self if all(word.lower() in texts[c.id] for word in words)]
        if not found:
            text = " ".join(words)
            raise FinettiError(f"There is no claim {text!r}, by id or words. {self._advice(text)}")
        return found

    def _advice(self, wanted: str) -> str:
        if not self.claims:
            return "The ledger is empty here."
        ids = {claim.id.lower(): claim.id for claim in self.claims}
        near = get_close_matches(wanted.strip("*").lower(), ids, n=3, cutoff=0.5)
        if not near:
            return "See all of them with `finetti claims`."
        return f"The nearest: {', '.join(ids[name] for name in near)}."

    def __card__(self) -> Card:
        columns = ("id", "claim", "source", "expected")
        rows = tuple((c.id, c.title, c.citation, c.expected.value) for c in self.claims)
        noun = "claim" if len(self) == 1 else "claims"
        return Card(f"{len(self)} {noun}", tables=(Table("", columns, rows),))


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
