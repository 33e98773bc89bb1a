"""``finetti audit`` in Python: checkpoints measured, bounded, compared, shown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from finetti.audit.adapters import open_tuned
from finetti.audit.auditing import measure_checkpoint
from finetti.audit.capacity import Capacity, measure_capacity
from finetti.audit.changes import CheckpointChanges, compare_checkpoints
from finetti.audit.checkpoint import Checkpoint
from finetti.audit.comparison import AuditComparison, compare_audits
from finetti.audit.edits import edit_checkpoint, parse_edit
from finetti.audit.gaps import GapCorrelations, correlate_gaps, match_gaps, read_gaps
from finetti.audit.moved import moved_weights
from finetti.audit.opening import open_checkpoint
from finetti.audit.proven import prove_checkpoint
from finetti.audit.result import Audit
from finetti.bounds.sample import Sample
from finetti.core.errors import InputError
from finetti.core.numbers import as_positive
from finetti.display.card import Card
from finetti.display.pages.run_result import RunResult
from finetti.display.progress import Progress, progress_bar

if TYPE_CHECKING:
    from finetti.display import Document

OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Audited:
    """A checkpoint with all that is known of it; ``changes`` since its base, if there is one."""

    audit: Audit
    capacity: Capacity
    changes: CheckpointChanges | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        """What there is, in the order in which it is shown."""
        return tuple(each for each in vars(self).values() if each is not None)

    @property
    def summary(self) -> str:
        """All in one line."""
        found = [_summary(self.audit), _summary_of_capacity(self.capacity)]
        found += [] if self.changes is None else [_summary_of_changes(self.changes)]
        return "; ".join(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        document = self.audit.to_dict() | {"capacity": self.capacity.to_dict()}
        return document | ({"changes": self.changes.to_dict()} if self.changes else {})


@dataclass(frozen=True)
class AuditReport(RunResult):
    """Checkpoints with all that is known of them, beside each other, their edits and their gaps.

    Args:
        found: the checkpoints.
        checkpoints: their comparison, if there are several.
        edited: each checkpoint beside its edits.
        correlations: norms beside gaps.
    """

    page_name: ClassVar[str] = "audit.html"

    found: Sequence[Audited]
    checkpoints: AuditComparison | None = None
    edited: tuple[AuditComparison, ...] = ()
    correlations: GapCorrelations | None = None

    @property
    def audit(self) -> Audit:
        """The norms of the first checkpoint."""
        return self.found[0].audit

    @property
    def capacity(self) -> Capacity:
        """The bounds of the first checkpoint."""
        return self.found[0].capacity

    @property
    def comparisons(self) -> dict[str, Any]:
        """What compares checkpoints, edits and gaps, by its title."""
        found: dict[str, Any] = {"Checkpoints side by side": self.checkpoints}
        found |= {f"If: {each.names[0]}": each for each in self.edited}
        found |= {"Norms and gaps": self.correlations}
        return {title: each for title, each in found.items() if each is not None}

    @property
    def headline(self) -> str:
        """A line per checkpoint, per edit, and on the gaps."""
        lines = [each.summary for each in self.found]
        lines += [f"{name}: {told or 'no measure changes'}" for name, told in self._changed()]
        if self.correlations is not None:
            top = self.correlations.rows[0]
            lines.append(f"gaps: {top.measure} has ρ = {top.value}, {top.verdict}")
        return "\n".join(lines)

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
        found: dict[str, Any] = {"audits": [each.to_dict() for each in self.found]}
        if self.checkpoints is not None:
            found["comparison"] = self.checkpoints.to_dict()
        if self.edited:
            found["edits"] = [each.to_dict() for each in self.edited]
        if self.correlations is not None:
            found["correlations"] = self.correlations.to_dict()
        return found

    def page(self, command: str = "") -> "Document":
        """The page: what bounds ask for, where capacity sits, and all that was measured."""
        from finetti.audit.page import audit_page

        return audit_page(self, command)

    def cards(self) -> tuple[Card, ...]:
        """One for each part of each checkpoint, and for each comparison."""
        parts = [part for each in self.found for part in each.parts]
        return tuple(each.__card__() for each in (*parts, *self.comparisons.values()))


def audit_checkpoint(
    *sources: Any,
    heads: int | None = None,
    kv_heads: int | None = None,
    layouts: str | Path | None = None,
    base: Any = None,
    context_length: int = 512,
    n_samples: int = 10_000,
    gap: float = 0.1,
    delta: float = 0.05,
    input_norm: float = 1.0,
    readout_norm: float = 1.0,
    edits: Sequence[str] = (),
    gaps: str | Path | None = None,
    quiet: bool = False,
) -> AuditReport:
    """The norms of checkpoints, and what bounds make of them: ``finetti audit`` in Python.

    The report prints its tables, writes its page (``report.write_page("audit")``) and has all
    numbers (``report.to_dict()``). What does not fit is refused before anything is measured.

    Args:
        sources, heads, kv_heads, layouts: see `measure_checkpoint`.
        base: checkpoint to compare with, or to add a LoRA adapter to.
        context_length, n_samples: T and n.
        gap, delta: between training and test error, with probability 1 − δ.
        input_norm: of a token, if there is no embedding table.
        readout_norm: of the readout vector.
        edits: to try, unsaved; see `parse_edit`.
        gaps: a CSV file with the columns checkpoint and gap, to correlate norms with gaps.
        quiet: no progress bar.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    >>> weights = {f"layers.0.self_attn.{k}": rng.normal(size=v) for k, v in shapes.items()}
    >>> report = audit_checkpoint(weights, heads=2, quiet=True)
    >>> report.audit.layout, len(report.capacity.rows) > 3
    ('torch', True)
    """
    if gaps is not None and len(sources) < 2:
        raise InputError("`gaps` needs several checkpoints: give more than one PATH.")
    tried = tuple(parse_edit(each) for each in edits)
    known = None if gaps is None else match_gaps([str(s) for s in sources], read_gaps(Path(gaps)))
    sizes = {"context_length": context_length, "n_samples": n_samples, "gap": gap, "delta": delta}
    sizes |= {"input_norm": input_norm, "readout_norm": readout_norm}
    _check(sizes)
    options = {"heads": heads, "kv_heads": kv_heads, "layouts": layouts}
    opened = _open(sources, base, options)
    changed = [[edit_checkpoint(each, edit, **options) for edit in tried] for each in opened]
    before = None if base is None else _measure(base, options, quiet)
    examine = partial(_examine, options=options, sizes=sizes, quiet=quiet)
    found = tuple(examine(each, base, before) for each in opened)
    names = [
        str(source) if isinstance(source, str | Path) else each.audit.name
        for source, each in zip(sources, found, strict=True)
    ]
    edited = tuple(
        _compared([each, *map(examine, edits)], [name, *map(str, tried)])
        for name, each, edits in zip(names, found, changed, strict=True)
        if edits
    )
    if len(found) < 2:
        return AuditReport(found, edited=edited)
    together = _compared(found, names)
    gap_rows = None if known is None else correlate_gaps(together, known)
    return AuditReport(found, together, edited, gap_rows)


def _compared(found: Sequence[Audited], names: Sequence[str]) -> AuditComparison:
    audits, capacities = ([getattr(each, part) for each in found] for part in ("audit", "capacity"))
    return compare_audits(audits, capacities, names)


def _check(sizes: Mapping[str, Any]) -> None:
    """Before anything is read."""
    owner = "audit_checkpoint"
    for name in ("input_norm", "readout_norm"):
        as_positive(sizes[name], name, owner)
    sample = Sample(sizes["n_samples"], sizes["context_length"], delta=sizes["delta"])
    sample.check_gap(sizes["gap"], owner)


def _open(sources: Sequence[Any], base: Any, options: Mapping[str, Any]) -> list[Checkpoint]:
    """All of them, refused as far as names and shapes can tell; no matrix is read."""
    checkpoints = [open_tuned(each, base, options["layouts"]) for each in sources]
    proven = [prove_checkpoint(each, **options) for each in checkpoints]
    if base is not None:
        original = prove_checkpoint(base, **options)
        for each in proven:
            each.check_base(original)
    return checkpoints


def _examine(
    checkpoint: Checkpoint,
    base: Any = None,
    before: Audit | None = None,
    *,
    options: Mapping[str, Any],
    sizes: Mapping[str, Any],
    quiet: bool,
) -> Audited:
    """All that is known of one checkpoint, and what moved since its base."""
    made = _measure(checkpoint, options, quiet)
    if base is None:
        return Audited(made, measure_capacity(made, **sizes))
    with _bar("compare", len(checkpoint.tensors), quiet) as on_progress:
        changes = compare_checkpoints(checkpoint, base, on_progress=on_progress, **options)
    moved = moved_weights(checkpoint, base, changes, options["layouts"])
    return Audited(made, measure_capacity(made, **sizes, base=before, moved=moved), changes)


def _measure(source: Any, options: Mapping[str, Any], quiet: bool) -> Audit:
    checkpoint = open_checkpoint(source)
    with _bar("audit", len(checkpoint.tensors), quiet) as on_progress:
        return measure_checkpoint(checkpoint, on_progress=on_progress, **options)


@contextmanager
def _bar(name: str, total: int, quiet: bool) -> Iterator[OnProgress]:
    with progress_bar(name, total, not quiet, "tensors") as on_change:
        yield lambda done, of, tensor: on_change(Progress(done * total // of, 0, tensor))


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
