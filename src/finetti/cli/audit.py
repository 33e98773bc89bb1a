"""``finetti audit``: the norms of a checkpoint, head by head."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json, Quiet
from finetti.core.errors import InputError
from finetti.show.progress import Progress, progress_bar


def audit(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="A .safetensors or .npz file, a folder, or a model's name in the hub cache; "
            "with --base also a LoRA adapter.",
        ),
    ],
    heads: Annotated[
        int | None,
        typer.Option("--heads", min=1, help="Where no config.json says how many there are."),
    ] = None,
    kv_heads: Annotated[
        int | None,
        typer.Option("--kv-heads", min=1, help="Keys and values, where heads share them."),
    ] = None,
    layouts: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Names of further families, as TOML."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="PATH", help="Show what moved since this checkpoint."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write results.json here.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure every head and matrix of checkpoints, and say what was read and what was not."""
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {str(out)!r} is a file. Give a folder.")
    people = make_console(stderr=as_json)
    options = {"heads": heads, "kv_heads": kv_heads, "layouts": layouts}
    found = []
    for path in paths:
        made = _audit(path, base, options, quiet)
        found.append(made.to_dict())
        people.print(_summary(made) if quiet else made, soft_wrap=quiet)
        if base is not None:
            changes = _compare(path, base, options, quiet)
            found[-1]["changes"] = changes.to_dict()
            people.print(_summary_of_changes(changes) if quiet else changes, soft_wrap=quiet)
    document = {"audits": found}
    if out is not None:
        from finetti.core.files import write_file

        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"The folder {str(out)!r} cannot be made: {error.strerror}."
            ) from error
        content = json.dumps(document, indent=1, allow_nan=False).encode()
        people.print(f"Results: {write_file(content, out / 'results.json')}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(document, indent=1, allow_nan=False))


def _audit(path: str, base: str | None, options: dict[str, Any], quiet: bool) -> Any:
    from finetti.audit import audit_checkpoint, open_tuned

    checkpoint = open_tuned(path, base, options["layouts"])
    with _bar("audit", len(checkpoint.tensors), quiet) as on_progress:
        return audit_checkpoint(checkpoint, on_progress=on_progress, **options)


def _compare(path: str, base: str, options: dict[str, Any], quiet: bool) -> Any:
    from finetti.audit import compare_checkpoints, open_tuned

    checkpoint = open_tuned(path, base, options["layouts"])
    with _bar("compare", len(checkpoint.tensors), quiet) as on_progress:
        return compare_checkpoints(checkpoint, base, on_progress=on_progress, **options)


@contextmanager
def _bar(name: str, total: int, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    with progress_bar(name, total, not quiet, "tensors") as on_change:
        yield lambda done, of, tensor: on_change(Progress(done * total // of, 0, tensor))


def _summary_of_changes(changes: Any) -> str:
    moved = changes.moved
    text = f"{changes.name}: {len(moved)} of {len(changes.matrices)} matrices moved"
    if not moved:
        return text
    top = moved[0]
    by = "from zero" if top.relative is None else f"by {100 * top.relative:.3g} %"
    return f"{text}; most of all {top.role} of layer {top.layer}, {by}"


def _summary(made: Any) -> str:
    sizes = [f"{kind} {each['largest_spectral']:.4g}" for kind, each in made.totals().items()]
    read = f"{len(made.read)} parameters read, {len(made.skipped)} skipped"
    return f"{made.name}: {read}; largest spectral norms: {', '.join(sizes)}"
