"""``finetti audit``: the norms of a checkpoint, and what bounds make of them."""

from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.options import Debug, Json, PageFolder, Quiet, command_line, options_named
from finetti.cli.output import NOTHING_KEPT, ends_with, present


def audit(
    context: typer.Context,
    sources: Annotated[
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
    n_samples: Annotated[
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
    gaps: Annotated[
        Path | None,
        typer.Option(
            "--gaps",
            metavar="FILE",
            help="CSV file with the columns checkpoint and gap, to correlate norms with gaps.",
        ),
    ] = None,
    out: PageFolder = None,
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
    with ends_with(NOTHING_KEPT), options_named(context):
        from finetti.audit import audit_checkpoint

        found = audit_checkpoint(
            *sources,
            heads=heads,
            kv_heads=kv_heads,
            layouts=layouts,
            base=base,
            context_length=context_length,
            n_samples=n_samples,
            gap=gap,
            delta=delta,
            input_norm=input_norm,
            readout_norm=readout_norm,
            gaps=gaps,
            quiet=quiet,
        )
    present(found, as_json=as_json, quiet=quiet, out=out, command=command_line(context))
