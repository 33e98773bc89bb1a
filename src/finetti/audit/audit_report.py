"""Checkpoints that were measured, bounded and compared, as text and as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from finetti.audit.capacity.capacity_result import Capacity
from finetti.audit.compare.audit_comparison import AuditComparison
from finetti.audit.compare.gap_correlation import GapCorrelations
from finetti.audit.compare.weight_changes import CheckpointChanges
from finetti.audit.measures.measurements import Audit
from finetti.core.plain_data import to_plain
from finetti.display.card import Card
from finetti.display.pages.run_result import RunResult


@dataclass(frozen=True)
class CheckpointReport:
    """A checkpoint with all that is known of it; ``changes`` since its base, if there is one."""

    audit: Audit
    capacity: Capacity
    changes: CheckpointChanges | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        """Return what there is, in the order in which it is shown."""
        return tuple(each for each in vars(self).values() if each is not None)

    @property
    def summary(self) -> str:
        """Return all in one line."""
        found = [_summary(self.audit), _summary_of_capacity(self.capacity)]
        found += [] if self.changes is None else [_summary_of_changes(self.changes)]
        return "; ".join(found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        document = self.audit.to_dict() | {"capacity": self.capacity.to_dict()}
        return document | ({"changes": self.changes.to_dict()} if self.changes else {})


@dataclass(frozen=True)
class AuditFindings(RunResult):
    """Checkpoints with all that is known of them, beside each other, and their gaps.

    Args:
        found: the checkpoints.
        checkpoints: their comparison, if there are several.
        correlations: norms beside gaps.
    """

    page_name: ClassVar[str] = "audit.html"

    found: Sequence[CheckpointReport]
    checkpoints: AuditComparison | None = None
    correlations: GapCorrelations | None = None

    @property
    def audit(self) -> Audit:
        """Return the norms of the first checkpoint."""
        return self.found[0].audit

    @property
    def capacity(self) -> Capacity:
        """Return the bounds of the first checkpoint."""
        return self.found[0].capacity

    @property
    def comparisons(self) -> dict[str, Any]:
        """Return what compares checkpoints and gaps, by its title."""
        found = {"Checkpoints side by side": self.checkpoints, "Norms and gaps": self.correlations}
        return {title: each for title, each in found.items() if each is not None}

    @property
    def headline(self) -> str:
        """Return a line per checkpoint, and on the gaps."""
        lines = [each.summary for each in self.found]
        if self.correlations is not None:
            top = self.correlations.rows[0]
            lines.append(f"gaps: {top.measure} has ρ = {top.value}, {top.verdict}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return what is there, as plain data."""
        parts = {"comparison": self.checkpoints, "correlations": self.correlations}
        known = {name: each for name, each in parts.items() if each is not None}
        return to_plain({"audits": self.found, **known})

    def cards(self) -> tuple[Card, ...]:
        """Return one for each part of each checkpoint, and for each comparison."""
        parts = [part for each in self.found for part in each.parts]
        return tuple(each.__card__() for each in (*parts, *self.comparisons.values()))


def _summary_of_capacity(capacity: Capacity) -> str:
    known = [row for row in capacity.rows if row.samples is not None]
    own, others = (
        ", ".join(f"{row.samples} by {row.name}" for row in known if bool(row.nearest) is nearest)
        for nearest in (False, True)
    )
    text = f"samples for a gap of {capacity.wanted:g}: {own or 'no bound covers it'}"
    return f"{text}; not of this network but of the nearest class: {others}" if others else text


def _summary_of_changes(changes: CheckpointChanges) -> str:
    moved = changes.moved
    text = f"{len(moved)} of {len(changes.matrices)} matrices moved"
    text += f" (and {len(changes.elsewhere)} parameters outside)" if changes.elsewhere else ""
    if not moved:
        return text
    top = moved[0]
    by = "from zero" if top.relative is None else f"by {100 * top.relative:.3g} %"
    return f"{text}; most of all {top.role} of layer {top.layer}, {by}"


def _summary(made: Audit) -> str:
    sizes = [f"{kind} {each['largest_spectral']:.4g}" for kind, each in made.totals().items()]
    read = f"{len(made.read)} parameters read, {len(made.skipped)} skipped"
    return f"{made.name}: {read}; largest spectral norms: {', '.join(sizes)}"
