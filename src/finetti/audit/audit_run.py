"""``finetti audit`` in Python: checkpoints measured, bounded and compared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from finetti.audit.audit_page import AuditReport
from finetti.audit.audit_report import Audited
from finetti.audit.capacity.capacity_rows import measure_capacity
from finetti.audit.compare.audit_comparison import compare_audits
from finetti.audit.compare.gap_correlation import correlate_gaps, match_gaps, read_gaps
from finetti.audit.compare.moved import moved_weights
from finetti.audit.compare.weight_changes import compare_checkpoints
from finetti.audit.lora_checkpoint import open_tuned
from finetti.audit.measures.checkpoint_audit import measure_checkpoint
from finetti.audit.measures.measurements import Audit
from finetti.audit.proven import prove_checkpoint
from finetti.audit.readers.checkpoint_files import open_checkpoint
from finetti.audit.readers.stored_tensor import Checkpoint
from finetti.bounds.sample import Sample
from finetti.core.arguments import as_positive
from finetti.core.errors import InputError
from finetti.display.progress import Progress, progress_bar

OnProgress = Callable[[int, int, str], None]


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
    options = {"heads": heads, "kv_heads": kv_heads, "layouts": layouts}
    opened = _open(sources, base, options)
    before = None if base is None else _measure(base, options, quiet)
    examine = partial(_examine, options=options, sizes=sizes, quiet=quiet)
    found = tuple(examine(each, base, before) for each in opened)
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
