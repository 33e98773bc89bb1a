"""Several checkpoints side by side: the sizes of each, and in which layers they differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from finetti.audit.capacity.capacity_result import Capacity
from finetti.audit.measures.measurements import TITLES, Audit
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of, smallest_of
from finetti.core.plain_data import field_values, to_plain
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

_LOG_10 = math.log(10)
MOST_DIFFERENT = 10
LOG_N = "log10_log_n."
PRODUCT = "log10_product_spectral"


@dataclass(frozen=True)
class MatrixSpread:
    """One kind of matrix of one layer in all checkpoints: spectral norms, of heads the largest.

    ``spread`` is (largest − smallest)/largest.
    """

    layer: str
    kind: str
    spectral: tuple[float, ...]

    @property
    def spread(self) -> float:
        """0 where all checkpoints agree, up to 1."""
        top = largest_of(self.spectral)
        return (top - smallest_of(self.spectral)) / top if top > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return field_values(self, "spread")


@dataclass(frozen=True)
class AuditComparison(Displayable):
    """Checkpoints in their order, their measures by name, and where they differ.

    ``spreads`` has every layer and kind of matrix, those that differ most first; empty where the
    checkpoints are not of one shape.
    """

    names: tuple[str, ...]
    measures: dict[str, tuple[float, ...]]
    spreads: tuple[MatrixSpread, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(field_values(self))

    def tables(self) -> tuple[Table, ...]:
        """Return a row per checkpoint, and the layers in which they differ."""
        shown = {name: title for name, title in _TITLES.items() if name in self.measures}
        one = self._table("Checkpoints", shown)
        sizes = {name: name.removeprefix(LOG_N) for name in self.measures if name.startswith(LOG_N)}
        tables = (one, self._table("log₁₀ log N by bound", sizes)) if sizes else (one,)
        body = []
        for each in self.spreads[:MOST_DIFFERENT]:
            if each.spread > 0:
                low, high = (each.spectral.index(f(each.spectral)) for f in (min, max))
                sizes = (
                    self.names[high],
                    largest_of(each.spectral),
                    self.names[low],
                    smallest_of(each.spectral),
                )
                body.append((each.layer, TITLES[each.kind], 100 * each.spread, *sizes))
        columns = ("layer", "matrix", "spread %", "largest in", "norm", "smallest in", "norm ")
        return (*tables, Table("Where they differ most", columns, tuple(body))) if body else tables

    def _table(self, title: str, shown: dict[str, str]) -> Table:
        rows = [
            (name, *(self.measures[each][i] for each in shown)) for i, name in enumerate(self.names)
        ]
        return Table(title, ("checkpoint", *shown.values()), tuple(rows))

    def __card__(self) -> Card:
        notes = () if self.spreads else ("Not of one shape, so not compared layer by layer.",)
        return Card(f"{len(self.names)} checkpoints", (), self.tables(), notes)


_TITLES = {f"{kind}.largest_spectral": title for kind, title in TITLES.items()}
_TITLES |= {PRODUCT: "log₁₀ of all norms"}


def compare_audits(
    audits: Sequence[Audit],
    capacities: Sequence[Capacity] | None = None,
    names: Sequence[str] | None = None,
) -> AuditComparison:
    """Audits in one table.

    Args:
        audits: of `measure_checkpoint`, at least two.
        capacities: of `measure_capacity`, one for each: their log N is compared as well.
        names: what to call them; their own names if None.
    """
    owner = "compare_audits"
    if len(audits) < 2:
        raise bad_argument("audits", owner, "at least two audits", len(audits))
    names = [each.name for each in audits] if names is None else names
    for what, given in (("names", names), ("capacities", capacities)):
        if given is not None and len(given) != len(audits):
            raise bad_argument(what, owner, f"{len(audits)}, one for each audit", len(given))
    found = [
        summarize_audit(audit, None if capacities is None else capacities[i])
        for i, audit in enumerate(audits)
    ]
    shared = [name for name in found[0] if all(name in each for each in found)]
    measures = {name: tuple(each[name] for each in found) for name in shared}
    return AuditComparison(tuple(names), measures, _spreads(audits))


def summarize_audit(audit: Audit, capacity: Capacity | None = None) -> dict[str, float]:
    """The measures of a whole checkpoint: totals of every kind of matrix, the logarithm of the
    product of all spectral norms, and log₁₀ log N of every bound that has one."""
    found = {
        f"{kind}.{name}": float(value)
        for kind, totals in audit.totals().items()
        for name, value in totals.items()
        if name != "count"
    }
    logs = [
        math.log10(each.spectral) if each.spectral > 0 else -math.inf
        for layer in audit.layers
        for kind in audit.kinds
        for each in layer.of_kind(kind)
    ]
    if math.isfinite(sum(logs)):
        found[PRODUCT] = sum(logs)
    for row in () if capacity is None else capacity.rows:
        if row.covering is not None:
            found[LOG_N + row.label] = row.covering.log_value / _LOG_10
    return found


def _spreads(audits: Sequence[Audit]) -> tuple[MatrixSpread, ...]:
    first = audits[0]
    shape = first.geometry, first.kinds, len(first.layers)
    if any((each.geometry, each.kinds, len(each.layers)) != shape for each in audits):
        return ()
    found = []
    for layers in zip(*(each.layers for each in audits), strict=True):
        for kind in first.kinds:
            sizes = [largest_of(each.spectral for each in layer.of_kind(kind)) for layer in layers]
            found.append(MatrixSpread(layers[0].label, kind, tuple(sizes)))
    return tuple(sorted(found, key=lambda each: -each.spread))
