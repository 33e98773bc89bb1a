"""``finetti reproduce``: run the claims, show the verdicts, write the report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.claims.claim import Claim, Context, Scale
from finetti.cli.console import make_console
from finetti.cli.options import DEBUG, Debug, Json, Quiet, Seed
from finetti.core.errors import FinettiError
from finetti.show.numbers import format_duration
from finetti.show.progress import Progress, progress_bar

if TYPE_CHECKING:
    from finetti.claims.runner import ClaimResult

INTERRUPTED = 130


def reproduce(
    command: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATTERN",
            help="Ids, globs or words, as E-prop*,softmax limit; may be repeated.",
        ),
    ] = None,
    scale: Annotated[
        Scale,
        typer.Option("--scale", case_sensitive=False, help="Minutes, or the grid as printed."),
    ] = Scale.QUICK,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write results.json and report.html here."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check the claims on this machine. Exit code 0 only if every verdict is as expected."""
    from finetti.claims import load_ledger
    from finetti.report import check_directory

    # All that the user may have to fix is checked before anything long begins.
    ledger = load_ledger()
    if not len(ledger):
        raise FinettiError("There are no claims in this installation. Install Finetti again.")
    chosen = (ledger.select(",".join(only)) if only else ledger).entries
    directory = check_directory(out) if out is not None else None

    run = _Run(chosen, Context(scale, seed), directory)
    with progress_bar("claims", len(chosen), not quiet, "claims", every=True) as on_change:
        run.go(lambda claim: on_change(Progress(len(run.results), 0, f"{claim.id} {claim.title}")))

    people = make_console(stderr=as_json)
    if not quiet:
        people.print(_verdict_table(run.results))
    if command.meta.get(DEBUG):
        for result in run.results:
            if result.error:
                people.print(result.error, soft_wrap=True)
    people.print(_summary(run), soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(run.document(), indent=1, allow_nan=False))
    if directory is not None:
        run.write_report()
        if not quiet:
            people.print(f"Report: {directory / 'report.html'}", soft_wrap=True)
    elif not quiet:
        people.print("Add --out DIR for the report with its charts, and the data.", soft_wrap=True)
    if run.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if all(result.as_expected for result in run.results) else 1)


class _Run:
    """The claims chosen, the results so far, and the files that hold them."""

    def __init__(self, claims: tuple[Claim, ...], context: Context, directory: Path | None) -> None:
        self.claims = claims
        self.context = context
        self.directory = directory
        self.results: list[ClaimResult] = []
        self.interrupted = False
        self.failure: FinettiError | None = None

    def go(self, on_start: Callable[[Claim], None]) -> None:
        """Run all claims; Ctrl-C ends this early and keeps what is finished."""
        from finetti.claims import provenance, run_claims

        self.made_by = provenance(self.context)
        try:
            for result in run_claims(self.claims, self.context, on_start):
                self.results.append(result)
                self._save()
        except KeyboardInterrupt:
            self.interrupted = True

    def document(self) -> dict[str, Any]:
        """The run so far as plain data."""
        from finetti.claims import results_document

        return results_document(self.results, self.made_by, len(self.claims))

    def _save(self) -> None:
        from finetti.report import write_results

        if self.directory is None or self.failure is not None:
            return
        try:
            write_results(self.document(), self.directory)
        except FinettiError as error:
            # A full disk must not cost the verdicts of a long run: they are shown first.
            self.failure = error

    def write_report(self) -> None:
        """Write the page, or say why the files could not be written."""
        from finetti.report import write_report, write_results

        if self.failure is not None:
            raise self.failure
        if self.directory is not None:
            write_results(self.document(), self.directory)
            write_report(self.document(), self.directory)


def _verdict_table(results: "list[ClaimResult]") -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("claim")
    table.add_column("verdict", no_wrap=True)
    table.add_column("decisive number", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for result in results:
        verdict = (
            f"{ {'holds': '✓', 'fails': '✗'}.get(result.verdict, '?') } {result.verdict.value}"
        )
        if not result.as_expected:
            verdict += f", expected: {result.expected.value}"
        elif result.expected != "holds":
            verdict += ", as expected"
        decisive = result.evidence.decisive if result.evidence else None
        table.add_row(
            Text(result.claim.id),
            Text(result.claim.title),
            Text(verdict, style="green" if result.as_expected else "bold red"),
            Text(decisive.outcome if decisive else result.reason),
            Text(format_duration(result.seconds)),
        )
    return table


def _summary(run: _Run) -> Any:
    from rich.text import Text

    good = sum(result.as_expected for result in run.results)
    finished, selected = len(run.results), len(run.claims)
    seconds = format_duration(sum(result.seconds for result in run.results))
    text = f"{good} of {finished} verdicts as expected"
    text += f" (scale {run.context.scale.value}, seed {run.context.seed}, {seconds})."
    if run.interrupted:
        text += f" Stopped with {selected - finished} of {selected} claims not run."
    return Text(text, style="bold green" if good == selected else "bold red")
