"""``finetti reproduce``: run the claims, show the verdicts, write the report."""

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.claims.claim import Context, Scale
from finetti.claims.results import time_words, verdict_sign, verdict_words
from finetti.cli.claims import CheckOption
from finetti.cli.console import make_console, say
from finetti.cli.options import DEBUG, INTERRUPTED, Debug, Json, Quiet, Seed
from finetti.cli.run_pages import command_line
from finetti.cli.studies import Cluster, Workers, resumable, run_study
from finetti.core.errors import FinettiError
from finetti.display.formatting import format_duration

if TYPE_CHECKING:
    from finetti.claims.run import ClaimResult

EVIDENCE = "evidence.sqlite"


def reproduce(
    command: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATTERN",
            help="Claims to check: IDs, globs, or words, as E-prop*,softmax limit. Repeatable.",
        ),
    ] = None,
    check: CheckOption = None,
    scale: Annotated[
        Scale,
        typer.Option(
            "--scale",
            case_sensitive=False,
            help="Amount of work: quick (minutes), or the papers' full grids.",
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
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory for the evidence, results.json, and report.html.",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="OLD.json", help="results.json of an earlier run to compare with."
        ),
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
    from finetti.claims import (
        load_ledger,
        provenance,
        read_results,
        reproduce_claims,
        results_document,
    )
    from finetti.core.files import check_directory, write_results
    from finetti.report import write_figures, write_report
    from finetti.studies.executors.local_executor import open_executor

    # All that the user may have to fix is checked before anything long begins.
    ledger = load_ledger()
    if not len(ledger):
        raise FinettiError("This installation has no claims. Reinstall Finetti.")
    wanted = ledger.select(",".join(only)) if only else ledger
    chosen = (wanted if check is None else wanted.checked_as(check)).entries
    if not chosen:
        raise FinettiError(f"No claim of this selection is checked as {check}. Select others.")
    directory = check_directory(out) if out is not None else None
    older = read_results(against) if against is not None else None
    if older is not None and (only or check):  # what was not asked for is neither removed nor new
        asked = {claim.id for claim in chosen}
        older["results"] = [each for each in older["results"] if each["id"] in asked]
    here = workers is None and cluster is None
    titles = {claim.id: claim.title for claim in chosen}
    ended = []

    def run(study: Any) -> None:
        options = {"describe": lambda params: _described(params["entry"], titles), "quiet": quiet}
        ended.append(run_study(study, executor, retry_failed=True, wait=True, **options))

    context = Context(scale, seed)
    with ExitStack() as stack:
        stack.enter_context(resumable())
        kind = "inline" if here else "local"
        executor = stack.enter_context(open_executor(kind, workers, cluster))
        place = directory or stack.enter_context(tempfile.TemporaryDirectory())
        store = Path(place) / EVIDENCE
        results = reproduce_claims(chosen, context, store=store, controls=controls, run=run)
    again = command_line(command, "reproduce", command.params)
    document = results_document(results, provenance(context), len(chosen), older, again)

    people = make_console(stderr=as_json)
    if not quiet:
        people.print(_verdict_table(results, document))
        people.print(_surprises(document), soft_wrap=True, end="")
    if command.meta.get(DEBUG):
        for result in results:
            if result.error:
                people.print(result.error, soft_wrap=True)
    people.print(_summary(document), soft_wrap=True)
    if as_json:
        say(json.dumps(document, indent=1, allow_nan=False))
    if directory is not None:
        write_results(document, directory)
        write_report(document, directory)
        write_figures(document, directory / "figures")
        if not quiet:
            people.print(f"Report: {directory / 'report.html'}", soft_wrap=True)
    elif not quiet:
        people.print("Add --out DIR to write the report, its charts, and the data.", soft_wrap=True)
    if ended and ended[0].interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if _is_success(results, allow_inconclusive) else 1)


def _described(entry: str, titles: dict[str, str]) -> str:
    """What is running: a claim with its title, or a control of one."""
    return f"{entry} {titles[entry]}" if entry in titles else entry


def _is_success(results: "list[ClaimResult]", allow_inconclusive: bool) -> bool:
    """Whether all is as expected; an error is never allowed, nor a control that nobody notices."""

    def good(result: "ClaimResult") -> bool:
        undecided = result.error is None and result.verdict == "inconclusive"
        return result.as_expected or (allow_inconclusive and undecided)

    return all(good(each) and all(control.red for control in each.controls) for each in results)


def _verdict_table(results: "list[ClaimResult]", document: dict[str, Any]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("claim")
    table.add_column("verdict", no_wrap=True)
    table.add_column("decisive number", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for result, plain in zip(results, document["results"], strict=True):
        verdict = f"{verdict_sign(plain)} {verdict_words(plain)}"
        decisive = result.evidence.decisive if result.evidence else None
        table.add_row(
            Text(result.claim.id),
            Text(result.claim.title),
            Text(verdict, style="green" if result.as_expected else "bold red"),
            Text(decisive.outcome if decisive else result.reason),
            Text(format_duration(result.seconds) if result.fresh else "reused"),
        )
    return table


def _surprises(document: dict[str, Any]) -> Any:
    """Controls that nobody noticed, and what changed; nothing if there is none of both."""
    from rich.text import Text

    lines = [
        f"{result['id']} does not notice: {control['name']}. {control['reason']}"
        for result in document["results"]
        for control in result["control_results"]
        if not control["red"]
    ]
    changes = document["changes"]
    if changes is not None:
        lines += [f"{x['id']}: {x['old']} before, {x['new']} now" for x in changes["flipped"]]
        lines += [f"{x['id']} moved: {x['name']}" for x in changes["moved"]]
        words = {"flipped": "flipped", "new": "new", "removed": "not in this run", "moved": "moved"}
        counts = (f"{len(changes[part])} {word}" for part, word in words.items())
        lines.append(f"Against the older run: {', '.join(counts)}.")
    return Text("".join(f"{line}\n" for line in lines))


def _summary(document: dict[str, Any]) -> Any:
    from rich.text import Text

    good, finished, selected = (document[n] for n in ("as_expected", "finished", "selected"))
    made_by, controls = document["provenance"], document["controls"]
    text = f"{good} of {finished} verdicts as expected"
    text += f" (scale {made_by['scale']}, seed {made_by['seed']}"
    text += f", {time_words(document)})."
    if controls["run"]:
        text += f" {controls['red']} of {controls['run']} controls turned red."
    if finished < selected:
        text += f" Interrupted with {selected - finished} of {selected} claims not run."
    complete = good == selected and controls["red"] == controls["run"]
    return Text(text, style="bold green" if complete else "bold red")
