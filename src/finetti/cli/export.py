"""``finetti export``: the results of a study as a file for other programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.console import say
from finetti.cli.options import Debug
from finetti.cli.studies import Place, ScaleName, StoreFile, StudySeed, private_stdout, study_at
from finetti.core.errors import InputError
from finetti.core.text import clean_text


def export(
    place: Place,
    form: Annotated[
        str,
        typer.Option("--format", metavar="csv|parquet|json|latex|markdown", help="Output format."),
    ] = "csv",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Output file; stdout by default.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Add IDs, times, traces, and provenance.")
    ] = False,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary", help="Mean, standard error, and count per cell instead of trials."
        ),
    ] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="From a damaged store, export the rows that are intact."),
    ] = False,
    store: StoreFile = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    debug: Debug = False,
) -> None:
    """Export the stored trials of a study as a table.

    Columns: parameters, version, replicate, state, metrics, and failure. Exits with 1 if no trials
    are stored, and says why, or if rows of a damaged store were left out.
    """
    from finetti.core.files import write_file
    from finetti.studies.store.store_reader import open_store
    from finetti.studies.study_status import study_status
    from finetti.studies.trial_table import (
        Format,
        export_table,
        make_table,
        plan_table,
        too_large,
    )

    if form not in tuple(Format):
        raise InputError(f"--format must be one of {', '.join(Format)}. Got {form!r} instead.")
    if form == Format.PARQUET and out is None:
        raise InputError("Parquet is not text. Give an output file with --out FILE.")
    study = study_at(place, scale, seed, store)
    with private_stdout():
        plan = study and study.plan
        path = study.store if study else place
        with open_store(path, or_empty=study is not None, salvage=salvage) as reader:
            rows, damaged = reader.rows(), reader.damaged
        if plan is None:
            table, earlier, pending = make_table(rows, details, summary), None, 0
        else:
            table = plan_table(plan, rows, details, summary)
            status = study_status(path, plan, rows)
            earlier, pending = status.earlier, status.studies[0].pending
    for name in damaged:
        say(f"Damaged, and left out: {name}", err=True)
    if table.empty:
        say(earlier or "No trials are stored. `finetti run` runs them.", err=True)
        raise typer.Exit(1)
    if pending:
        said = f" {earlier}" if earlier else ""
        say(f"{pending} trials have no result yet: `finetti run` runs them.{said}", err=True)
    content = export_table(table, Format(form))
    if renamed := table.attrs["renamed"]:
        pairs = ", ".join(f"{old} → {new}" for new, old in renamed.items())
        say(f"Renamed, because another column has the name: {pairs}", err=True)
    if out is None:
        # Programs get every byte; a terminal gets nothing that would steer it.
        text = content.decode()
        sys.stdout.write(clean_text(text) if sys.stdout.isatty() else text)
    else:
        write_file(content, out)
        if form == Format.PARQUET and (names := too_large(table)):
            say(f"Written as text, because they exceed 64 bits: {', '.join(names)}", err=True)
        say(f"{len(table)} {'cells' if summary else 'trials'} written to {out}", err=True)
    if damaged:
        raise typer.Exit(1)
