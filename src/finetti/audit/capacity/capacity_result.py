"""The capacity of a checkpoint as data, tables and text."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from finetti.bounds import BoundValue, Sample, Term
from finetti.bounds.value import finite
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

RESOLUTION = 0.1
TUNING = "fine-tuning: base + Δ"
VACUOUS = "vacuous"
_LOG_10 = math.log(10)


@dataclass(frozen=True)
class CapacityRow:
    """One way to bound a network: its capacity, the gap at n samples, and the samples it asks for.

    Args:
        name: as people call it.
        covering: log N(ε), where the theorem has it.
        gap: at the sample.
        needed: samples for the gap that was asked for.
        post_hoc: what choosing the class after training adds to log(3/δ), for ``n_radii`` radii.
        violates: assumptions of the theorem that the network violates; then the values are those of
            the ``nearest`` class.
        refused: why there are no values.
        growth: log N(ε) for every context length, as logarithms.
    """

    name: str
    covering: BoundValue | None = None
    gap: BoundValue | None = None
    needed: BoundValue | None = None
    post_hoc: float = 0.0
    n_radii: int = 0
    violates: tuple[str, ...] = ()
    nearest: str = ""
    refused: str = ""
    growth: tuple[float, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """Layers and matrices by their part of log N."""
        return () if self.covering is None else self.covering.terms

    @property
    def samples(self) -> str | None:
        """Return the samples needed, as text."""
        return None if self.needed is None else self.needed.text

    @property
    def label(self) -> str:
        """Return the name, with "nearest class" where the values are not those of the network."""
        return f"{self.name}, nearest class" if self.nearest else self.name

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        values = {"covering": self.covering, "gap": self.gap, "needed": self.needed}
        return {
            "name": self.name,
            **{name: value and value.to_dict() for name, value in values.items()},
            "post_hoc": self.post_hoc,
            "n_radii": self.n_radii,
            "violates": list(self.violates),
            "nearest_class": self.nearest or None,
            "refused": self.refused or None,
            "growth": [finite(value) for value in self.growth],
        }


@dataclass(frozen=True)
class Capacity(Displayable):
    """All rows for one checkpoint."""

    name: str
    rows: tuple[CapacityRow, ...]
    sample: Sample
    wanted: float
    lengths: tuple[int, ...]
    labels: tuple[str, ...]  # of the layers, which terms count from 1
    tables: tuple[str, ...] = ()  # of embeddings
    notes: tuple[str, ...] = ()
    log_lipschitz: float | None = None
    n_parameters: int = 0

    def row(self, name: str) -> CapacityRow:
        """Return the row of this name."""
        return next(each for each in self.rows if each.name == name)

    @property
    def best(self) -> CapacityRow | None:
        """Of the rows that cover the network itself, the one that asks for the fewest samples."""
        found = [each for each in self.rows if not each.nearest and each.name != TUNING]
        found = [each for each in found if each.needed is not None]
        return min(found, key=log_needed, default=None)

    def place(self, term: Term) -> tuple[str, str]:
        """Return a term's layer, as the checkpoint numbers it, and its matrix."""
        matrix = term.matrix or term.name
        if matrix.startswith("embedding ") and self.tables:
            return "embeddings", self.tables[int(matrix.removeprefix("embedding ")) - 1]
        if term.layer is None:
            return ("readout" if matrix in ("w", "readout") else "outside"), matrix
        return f"layer {self.labels[(term.layer - 1) % len(self.labels)]}", matrix

    def shares(self, row: CapacityRow, part: Callable[[str, str], Any]) -> dict[Any, float]:
        """log N summed over the terms with the same ``part`` of their layer and matrix."""
        found: dict[Any, float] = {}
        for term in row.terms:
            where = part(*self.place(term))
            found[where] = found.get(where, 0.0) + (term.share or 0.0)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "context_length": self.sample.context_length,
            "n_samples": self.sample.n_samples,
            "gap": self.wanted,
            "delta": self.sample.delta,
            "resolution": RESOLUTION,
            "lengths": list(self.lengths),
            "log10_lipschitz": finite(_log10(self.log_lipschitz)),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }

    def table(self) -> Table:
        """Return a row per bound."""
        columns = (
            "bound",
            "of",
            "log₁₀ log N",
            "gap at n",
            "samples needed",
            "post-hoc",
        )
        rows = []
        for row in self.rows:
            of = "base + Δ" if row.name == TUNING else "this network"
            of = "nearest class" if row.nearest else of
            if row.covering is None:
                rows.append((row.name, "refused", None, None, None, None, None))
                continue
            assert row.gap is not None
            size = round(row.covering.log_value / _LOG_10, 2)
            top = self.largest(row)
            assert row.needed is not None
            needed = row.needed.number
            needed = float(needed) if isinstance(needed, int) and needed >= 10**7 else needed
            gap = VACUOUS if row.gap.vacuous else row.gap.number
            rows.append((row.name, of, size, gap, needed, row.post_hoc, top))
        title = f"Capacity at ε = {RESOLUTION:g}, and samples for a gap of {self.wanted:g}"
        return Table(title, (*columns, "most of it"), tuple(rows))

    def vacuous_note(self) -> str:
        """Return which gaps say nothing at n; empty if all of them do say something."""
        known = [row for row in self.rows if row.gap is not None]
        names = [row.label for row in known if row.gap is not None and row.gap.vacuous]
        if not names:
            return ""
        by = "every bound" if len(names) == len(known) else ", ".join(names)
        return (
            f"At n = {self.sample.n_samples:,} samples the gap is vacuous by {by}: it is at least "
            f"{self.sample.loss_bound:g}, the range of the loss, which says nothing. What such "
            "bounds compare is how fast their demands grow."
        )

    def largest(self, row: CapacityRow) -> str | None:
        """Return which matrix adds most to log N, and how much of it; None where nothing does."""
        if row.covering is None or row.covering.log_value == -math.inf:
            return None
        shares = self.shares(row, lambda layer, matrix: (layer, _kind(matrix)))
        (layer, matrix), share = max(shares.items(), key=lambda each: each[1])
        return f"{layer}, {matrix}: {100 * share:.3g} %"

    def growth_table(self) -> Table:
        """log₁₀ log N for every context length."""
        rows = [row for row in self.rows if row.growth]
        columns = ("context length", *(row.label for row in rows))
        body = [
            (length, *(f"{row.growth[i] / _LOG_10:.4f}" for row in rows))
            for i, length in enumerate(self.lengths)
        ]
        return Table("log₁₀ log N for every context length", columns, tuple(body))

    def violations_table(self) -> Table | None:
        """Return the assumptions that the network violates, by theorem."""
        rows = []
        for row in self.rows:
            said = [*row.violates, *([f"refused: {row.refused}"] if row.refused else [])]
            rows += [("" if i else row.name, each) for i, each in enumerate(said)]
        return (
            Table("Assumptions that this network violates", ("bound", "assumes"), tuple(rows))
            if rows
            else None
        )

    def __card__(self) -> Card:
        sample = self.sample
        fields = (
            ("context length", sample.context_length),
            ("samples n", sample.n_samples),
            ("δ", sample.delta),
            ("Lipschitz constant", _power(self.log_lipschitz)),
        )
        broken = self.violations_table()
        tables = (self.table(), *(() if broken is None else (broken,)))
        vacuous = self.vacuous_note()
        notes = (*((vacuous,) if vacuous else ()), *self.notes)
        return Card(f"Capacity of {self.name}", fields, tables, notes)


def _log10(log_value: float | None) -> float:
    return math.nan if log_value is None else log_value / _LOG_10


def _power(log_value: float | None) -> str | None:
    return None if log_value is None else f"10^{log_value / _LOG_10:.1f}"


def _kind(matrix: str) -> str:
    """ "W_QK, head 3" is one of the W_QK."""
    return matrix.partition(", head")[0]


def log_needed(row: CapacityRow) -> float:
    """Return the logarithm of the samples that a row asks for, infinite where it is refused."""
    return math.inf if row.needed is None else row.needed.log_value
