"""``finetti audit``: the norms of a checkpoint, and what bounds make of them."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.audit_comparisons import check_comparisons, edit_checkpoints, make_comparisons
from finetti.cli.console import make_console, say
from finetti.cli.interruption import NOTHING_KEPT, ends_with
from finetti.cli.options import Debug, Json, Quiet, options_named
from finetti.display.progress import Progress, progress_bar

if TYPE_CHECKING:
    from finetti.audit import Checkpoint
    from finetti.audit.page import Audited

PAGE = "audit.html"
# How Python calls what an option gives.
OPTIONS = {
    "context_length": "--context-length",
    "n_samples": "--samples",
    "gap": "--gap",
    "delta": "--delta",
    "input_norm": "--input-norm",
    "readout_norm": "--readout-norm",
}
# How Python calls the rest of what errors name.
NAMES = OPTIONS | {
    "heads": "--heads",
    "kv_heads": "--kv-heads",
    "layouts": "--map",
    "base": "--base",
}


def audit(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Checkpoint: a .safetensors or .npz file, a folder, or the name of a model in the "
            "local Hugging Face cache; with --base, also a LoRA adapter.",
        ),
    ],
    heads: Annotated[
        int | None,
        typer.Option(
            "--heads", min=1, help="Number of attention heads, if no config.json says it."
        ),
    ] = None,
    kv_heads: Annotated[
        int | None,
        typer.Option("--kv-heads", min=1, help="Number of key/value heads, if heads share them."),
    ] = None,
    layouts: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FILE",
            help="TOML file with the parameter names of other model families.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="PATH",
            help="Base checkpoint to compare with, or to add a LoRA adapter to.",
        ),
    ] = None,
    context_length: Annotated[
        int, typer.Option("--context-length", min=1, metavar="T", help="Tokens per sequence.")
    ] = 512,
    samples: Annotated[
        int, typer.Option("--samples", min=1, metavar="N", help="Number of independent sequences.")
    ] = 10_000,
    gap: Annotated[
        float,
        typer.Option("--gap", help="Target gap between training and test error."),
    ] = 0.1,
    delta: Annotated[float, typer.Option("--delta", help="Probability that a bound fails.")] = 0.05,
    input_norm: Annotated[
        float,
        typer.Option("--input-norm", help="Norm of a token, if there is no embedding table."),
    ] = 1.0,
    readout_norm: Annotated[
        float,
        typer.Option("--readout-norm", help="Norm of the readout vector."),
    ] = 1.0,
    edits: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            metavar="EDIT",
            help="Edit to try, unsaved: `scale LAYER FACTOR`, `drop LAYER.HEAD`, or `share KEYS`. "
            "Repeatable.",
        ),
    ] = None,
    gaps: Annotated[
        Path | None,
        typer.Option(
            "--gaps",
            metavar="FILE",
            help="CSV file with the columns checkpoint and gap, to correlate norms with gaps.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory for results.json, the HTML page, and its charts.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the norms of every head and matrix in a checkpoint, and evaluate capacity bounds.

    Reports which parameters were read and which were skipped, how many samples each bound asks for,
    which layers and matrices drive it, and which assumptions of a theorem the network violates.
    """
    if out is not None:
        from finetti.core.files import check_directory

        check_directory(out)
    wanted = check_comparisons(paths, edits, gaps)
    people = make_console(stderr=as_json)
    options = {"heads": heads, "kv_heads": kv_heads, "layouts": layouts}
    sizes = {"context_length": context_length, "n_samples": samples, "gap": gap, "delta": delta}
    sizes |= {"input_norm": input_norm, "readout_norm": readout_norm}
    with ends_with(NOTHING_KEPT), options_named(NAMES):
        _check(sizes)
        checkpoints = _open(paths, base, options)
        edited = edit_checkpoints(checkpoints, wanted, options)
        before = None if base is None else _audit(base, options, quiet)
        found = []
        for checkpoint in checkpoints:
            found.append(_examine(checkpoint, base, before, options, sizes, quiet))
            _show(found[-1], people, quiet)
        again = partial(_examine, base=None, before=None, options=options, sizes=sizes, quiet=quiet)
        more = make_comparisons(found, paths, wanted, edited, again)
        more.show(people, quiet)
    given = {"--base": base, "--heads": heads, "--kv-heads": kv_heads, "--map": layouts}
    given |= {"--if": edits, "--gaps": gaps}
    given |= {option: sizes[name] for name, option in OPTIONS.items()}
    document = _document(found, paths, given) | more.to_dict()
    if out is not None:
        _write(found, document, out, more.sections())
        people.print(f"Page: {out / PAGE}", style="bold", soft_wrap=True)
    if as_json:
        say(json.dumps(document, indent=1, allow_nan=False))


def _check(sizes: dict[str, Any]) -> None:
    """Before anything is read."""
    from finetti.bounds import Sample
    from finetti.core.numbers import as_positive

    owner = "finetti audit"
    for name in ("input_norm", "readout_norm"):
        as_positive(sizes[name], name, owner)
    sample = Sample(sizes["n_samples"], sizes["context_length"], delta=sizes["delta"])
    sample.check_gap(sizes["gap"], owner)


def _open(paths: list[str], base: str | None, options: dict[str, Any]) -> "list[Checkpoint]":
    """All of them, refused as far as names and shapes can tell; no matrix is read."""
    from finetti.audit import open_tuned, prove_checkpoint

    checkpoints = [open_tuned(path, base, options["layouts"]) for path in paths]
    proven = [prove_checkpoint(each, **options) for each in checkpoints]
    if base is not None:
        original = prove_checkpoint(base, **options)
        for each in proven:
            each.check_base(original)
    return checkpoints


def _examine(
    checkpoint: "Checkpoint",
    base: str | None,
    before: Any,
    options: dict[str, Any],
    sizes: dict[str, Any],
    quiet: bool,
) -> "Audited":
    """All that is known of one checkpoint, and what moved since its base."""
    from finetti.audit import measure_capacity, moved_weights
    from finetti.audit.page import Audited

    made = _audit(checkpoint, options, quiet)
    if base is None:
        return Audited(made, measure_capacity(made, **sizes))
    changes = _compare(checkpoint, base, options, quiet)
    moved = moved_weights(checkpoint, base, changes, options["layouts"])
    return Audited(made, measure_capacity(made, **sizes, base=before, moved=moved), changes)


def _audit(source: Any, options: dict[str, Any], quiet: bool) -> Any:
    from finetti.audit import audit_checkpoint, open_checkpoint

    checkpoint = open_checkpoint(source)
    with _bar("audit", len(checkpoint.tensors), quiet) as on_progress:
        return audit_checkpoint(checkpoint, on_progress=on_progress, **options)


def _compare(checkpoint: Any, base: str, options: dict[str, Any], quiet: bool) -> Any:
    from finetti.audit import compare_checkpoints

    with _bar("compare", len(checkpoint.tensors), quiet) as on_progress:
        return compare_checkpoints(checkpoint, base, on_progress=on_progress, **options)


def _document(found: "list[Audited]", paths: list[str], given: dict[str, Any]) -> dict[str, Any]:
    from finetti.core.provenance import software

    words = ["finetti", "audit", *paths]
    for option, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            words += [] if each is None else [option, str(each)]
    audits = []
    for each in found:
        audits.append(each.audit.to_dict() | {"capacity": each.capacity.to_dict()})
        if each.changes is not None:
            audits[-1]["changes"] = each.changes.to_dict()
    return {"audits": audits, "command": shlex.join(words), "provenance": software()}


def _write(found: "list[Audited]", document: dict[str, Any], out: Path, more: Any) -> None:
    from finetti.audit.page import audit_page
    from finetti.cli.run_pages import write_page

    write_page(audit_page(found, document, more), document, out, PAGE)


def _show(found: "Audited", people: Any, quiet: bool) -> None:
    parts = [found.audit, found.capacity]
    lines = [_summary(found.audit), _summary_of_capacity(found.capacity)]
    if found.changes is not None:
        parts.append(found.changes)
        lines.append(_summary_of_changes(found.changes))
    if quiet:
        people.print("; ".join(lines), soft_wrap=True)
        return
    for part in parts:
        people.print(part)


@contextmanager
def _bar(name: str, total: int, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    with progress_bar(name, total, not quiet, "tensors") as on_change:
        yield lambda done, of, tensor: on_change(Progress(done * total // of, 0, tensor))


def _summary_of_capacity(capacity: Any) -> str:
    known = [row for row in capacity.rows if row.samples is not None]
    own, others = (
        ", ".join(f"{row.samples} by {row.name}" for row in known if bool(row.nearest) is nearest)
        for nearest in (False, True)
    )
    text = f"samples for a gap of {capacity.wanted:g}: {own or 'no bound covers it'}"
    return f"{text}; not of this network but of the nearest class: {others}" if others else text


def _summary_of_changes(changes: Any) -> str:
    moved = changes.moved
    text = f"{len(moved)} of {len(changes.matrices)} matrices moved"
    text += f" (and {len(changes.elsewhere)} parameters outside)" if changes.elsewhere else ""
    if not moved:
        return text
    top = moved[0]
    by = "from zero" if top.relative is None else f"by {100 * top.relative:.3g} %"
    return f"{text}; most of all {top.role} of layer {top.layer}, {by}"


def _summary(made: Any) -> str:
    sizes = [f"{kind} {each['largest_spectral']:.4g}" for kind, each in made.totals().items()]
    read = f"{len(made.read)} parameters read, {len(made.skipped)} skipped"
    return f"{made.name}: {read}; largest spectral norms: {', '.join(sizes)}"
