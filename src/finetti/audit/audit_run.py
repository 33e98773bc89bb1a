"""``finetti audit`` in Python: checkpoints measured, bounded and compared."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finetti.audit.audit_page import AuditReport
from finetti.audit.audit_report import CheckpointReport
from finetti.audit.capacity.capacity_rows import measure_capacity
from finetti.audit.checkpoint import Checkpoint, open_checkpoint
from finetti.audit.compare.audit_comparison import compare_audits
from finetti.audit.compare.gap_correlation import correlate_gaps, match_gaps, read_gaps
from finetti.audit.compare.weight_changes import WeightComparison
from finetti.audit.measures.checkpoint_audit import CheckpointMeasurement
from finetti.audit.measures.measurements import Audit
from finetti.audit.measures.weight_readings import OnProgress, WeightReading, walk_weights
from finetti.bounds.value import Sample
from finetti.core.arguments import as_positive
from finetti.core.errors import InputError
from finetti.display.progress import Progress, progress_bar


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
    gaps: str | Path | None = None,
    quiet: bool = False,
) -> AuditReport:
    """Return the norms of checkpoints, and what bounds make of them: ``finetti audit`` in Python.

    The report prints its tables, writes its page (``report.write_page("audit")``) and has all
    numbers (``report.to_dict()``). What does not fit is refused before anything is measured.

    Args:
        sources, heads, kv_heads, layouts: see `open_checkpoint`.
        base: checkpoint to compare with, or to add a LoRA adapter to.
        context_length, n_samples: T and n.
        gap, delta: between training and test error, with probability 1 − δ.
        input_norm: of a token, if there is no embedding table.
        readout_norm: of the readout vector.
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
    known = None if gaps is None else match_gaps([str(s) for s in sources], read_gaps(Path(gaps)))
    sizes = {"context_length": context_length, "n_samples": n_samples, "gap": gap, "delta": delta}
    sizes |= {"input_norm": input_norm, "readout_norm": readout_norm}
    _check(sizes)
    options: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "layouts": layouts}
    opened: list[Checkpoint] = []
    for source in sources:
        opened.append(open_checkpoint(source, base=base, **options))
        base = opened[-1].base  # opened once
    found, before = [], None
    for checkpoint in opened:
        report, before = _examine(checkpoint, before, sizes, quiet)
        found.append(report)
    if len(found) < 2:
        return AuditReport(found)
    names = [
        str(source) if isinstance(source, str | Path) else each.audit.name
        for source, each in zip(sources, found, strict=True)
    ]
    audits, capacities = ([getattr(each, part) for each in found] for part in ("audit", "capacity"))
    together = compare_audits(audits, capacities, names)
    return AuditReport(found, together, None if known is None else correlate_gaps(together, known))


def _check(sizes: Mapping[str, Any]) -> None:
    """Before anything is read."""
    owner = "audit_checkpoint"
    for name in ("input_norm", "readout_norm"):
        as_positive(sizes[name], name, owner)
    sample = Sample(sizes["n_samples"], sizes["context_length"], delta=sizes["delta"])
    sample.check_gap(sizes["gap"], owner)


def _examine(
    checkpoint: Checkpoint, before: Audit | None, sizes: Mapping[str, Any], quiet: bool
) -> tuple[CheckpointReport, Audit | None]:
    """Return all that is known of a checkpoint, and the norms of its base, measured if ``before``
    does not have them; every weight of both is read once."""
    base = checkpoint.base
    mine = CheckpointMeasurement(checkpoint)
    others = CheckpointMeasurement(base) if base is not None and before is None else None
    comparison = None if base is None else WeightComparison(checkpoint)

    def take(new: WeightReading, old: WeightReading | None) -> None:
        mine.add(new)
        if others is not None and old is not None:
            others.add(old)
        if comparison is not None:
            comparison.add(new, old)

    with _bar("audit", len(checkpoint.tensors), quiet) as on_progress:
        walk_weights(checkpoint, take, with_base=base is not None, on_progress=on_progress)
    audit = mine.audit()
    if comparison is None:
        return CheckpointReport(audit, measure_capacity(audit, **sizes)), None
    changes = comparison.changes()
    before = before if others is None else others.audit()
    capacity = measure_capacity(audit, **sizes, base=before, moved=changes.deltas)
    return CheckpointReport(audit, capacity, changes), before


@contextmanager
def _bar(name: str, total: int, quiet: bool) -> Iterator[OnProgress]:
    with progress_bar(name, total, not quiet, "tensors") as on_change:
        yield lambda done, of, tensor: on_change(Progress(done * total // of, 0, tensor))
