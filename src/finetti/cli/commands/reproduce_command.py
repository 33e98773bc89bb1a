"""``finetti reproduce``: run the claims, show the verdicts, write the report."""

from pathlib import Path
from typing import Annotated

import typer

from finetti.claims.claim import Scale
from finetti.cli.commands.claims_command import CheckOption
from finetti.cli.options import (
    DEBUG,
    Cluster,
    Debug,
    Json,
    PageFolder,
    Quiet,
    Seed,
    Workers,
    command_line,
)
from finetti.cli.output import present, resumable, run_verb, tell

EVIDENCE = "evidence.sqlite"


def reproduce(
    context: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Claims to check: IDs, globs, or words, as E-prop*,softmax limit. Repeatable.",
        ),
    ] = None,
    check: CheckOption = None,
    scale: Annotated[
        Scale,
        typer.Option(
            case_sensitive=False, help="Amount of work: quick (minutes), or the papers' full grids."
        ),
    ] = Scale.QUICK,
    seed: Seed = 0,
    controls: Annotated[
        bool, typer.Option("--controls", help="Also check the wrong versions, which must turn red.")
    ] = False,
    allow_inconclusive: Annotated[
        bool,
        typer.Option("--allow-inconclusive", help="Exit with 0 even if some claims are undecided."),
    ] = False,
    out: PageFolder = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="OLD.json", help="results.json of an earlier run to compare with."),
    ] = None,
    workers: Workers = None,
    cluster: Cluster = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check the papers' claims on this machine.

    Exits with 0 only if every verdict is as expected. With --out, evidence that the same code found
    before is reused: rerun the same command to resume an interrupted run.
    """
    from finetti.core.files import check_directory
    from finetti.report import reproduce_claims

    with resumable():
        store = None if out is None else check_directory(out) / EVIDENCE
        how = {"workers": workers, "cluster": cluster, "quiet": quiet, "store": store}
        found = run_verb(
            reproduce_claims,
            only or (),
            check,
            scale,
            seed,
            controls=controls,
            allow_inconclusive=allow_inconclusive,
            against=against,
            **how,
        )
    if context.meta.get(DEBUG):
        for error in (each.error for each in found.claims if each.error):
            tell(error)
    advice = "" if out else "Add --out DIR to write the report, its charts, and the data."
    command = command_line(context)
    present(found, as_json=as_json, quiet=quiet, out=out, command=command, advice=advice)
