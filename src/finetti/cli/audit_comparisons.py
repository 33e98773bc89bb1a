"""What `finetti audit` says of several checkpoints together, of edits, and of gaps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.audit import AuditComparison, Checkpoint, GapCorrelations
    from finetti.audit.page import Audited


@dataclass(frozen=True)
class Wanted:
    """Edits to try, and the gap of every checkpoint to correlate with."""

    edits: tuple[Any, ...] = ()
    gaps: list[float] | None = None


@dataclass(frozen=True)
class Comparisons:
    """Checkpoints beside each other, a checkpoint beside its edits, norms beside gaps."""

    checkpoints: "AuditComparison | None" = None
    edited: "tuple[AuditComparison, ...]" = ()
    correlations: "GapCorrelations | None" = None

    @property
    def _shown(self) -> dict[str, Any]:
        found: dict[str, Any] = {"Checkpoints side by side": self.checkpoints}
        found |= {f"If: {each.names[0]}": each for each in self.edited}
        found |= {"Norms and gaps": self.correlations}
        return {title: each for title, each in found.items() if each is not None}

    def show(self, people: Any, quiet: bool) -> None:
        """For people; only what was asked for by name is said in a quiet run, in a line each."""
        if not quiet:
            for each in self._shown.values():
                people.print(each)
            return
        for name, found in self._changed():
            people.print(f"{name}: {found or 'no measure changes'}", soft_wrap=True)
        if self.correlations is not None:
            top = self.correlations.rows[0]
            people.print(f"gaps: {top.measure} has ρ = {top.value}, {top.verdict}", soft_wrap=True)

    def _changed(self) -> Iterator[tuple[str, str]]:
        """Of every edit, the measures that it changes, as old → new."""
        for compared in self.edited:
            for place, name in enumerate(compared.names[1:], 1):
                yield (
                    f"If {name}",
                    "; ".join(
                        f"{measure} {values[0]:.4g} → {values[place]:.4g}"
                        for measure, values in compared.measures.items()
                        if values[place] != values[0]
                    ),
                )

    def to_dict(self) -> dict[str, Any]:
        """What is there, as plain data."""
        found: dict[str, Any] = {}
        if self.checkpoints is not None:
            found["comparison"] = self.checkpoints.to_dict()
        if self.edited:
            found["edits"] = [each.to_dict() for each in self.edited]
        if self.correlations is not None:
            found["correlations"] = self.correlations.to_dict()
        return found

    def sections(self) -> list[Any]:
        """Sections of the page."""
        from finetti.display import Section

        found = []
        for title, each in self._shown.items():
            card = each.__card__()
            found.append(Section(title, tables=card.tables, notes=card.notes))
        return found


def check_comparisons(
    paths: Sequence[str], edits: Sequence[str] | None, gaps: Path | None
) -> Wanted:
    """Before anything is measured."""
    if edits is None and gaps is None:
        return Wanted()
    from finetti.audit import match_gaps, parse_edit, read_gaps

    if gaps is not None and len(paths) < 2:
        raise InputError("--gaps needs several checkpoints: give more than one PATH.")
    parsed = tuple(parse_edit(each) for each in edits or ())
    return Wanted(parsed, None if gaps is None else match_gaps(paths, read_gaps(gaps)))


def edit_checkpoints(
    checkpoints: "Sequence[Checkpoint]", wanted: Wanted, options: dict[str, Any]
) -> "list[list[Checkpoint]]":
    """Every checkpoint after every edit, still unread; refused where an edit does not fit."""
    from finetti.audit import edit_checkpoint

    return [
        [edit_checkpoint(each, edit, **options) for edit in wanted.edits] for each in checkpoints
    ]


def make_comparisons(
    found: "Sequence[Audited]",
    paths: Sequence[str],
    wanted: Wanted,
    changed: "Sequence[Sequence[Checkpoint]]",
    examine: "Callable[[Checkpoint], Audited]",
) -> Comparisons:
    """``changed`` has the edits of each checkpoint; ``examine`` audits one of them."""
    from finetti.audit import correlate_gaps

    edited = []
    for path, each, edits in zip(paths, found, changed, strict=True) if wanted.edits else ():
        names = [path, *map(str, wanted.edits)]
        edited.append(_compared([each, *map(examine, edits)], names))
    if len(found) < 2:
        return Comparisons(edited=tuple(edited))
    checkpoints = _compared(found, paths)
    gaps = None if wanted.gaps is None else correlate_gaps(checkpoints, wanted.gaps)
    return Comparisons(checkpoints, tuple(edited), gaps)


def _compared(found: "Sequence[Audited]", names: Sequence[str]) -> "AuditComparison":
    from finetti.audit import compare_audits

    audits, capacities = ([getattr(each, part) for each in found] for part in ("audit", "capacity"))
    return compare_audits(audits, capacities, names)
