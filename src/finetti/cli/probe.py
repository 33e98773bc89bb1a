"""``finetti probe``: how many samples a learner needs to find a hidden rule."""

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json, Quiet, Seed, whole_numbers
from finetti.cli.reproduce import INTERRUPTED
from finetti.cli.studies import (
    Cluster,
    RetryFailed,
    Workers,
    private_stdout,
    resumable,
    run_study,
    say_what_is_stored,
    show_failures,
)
from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.probe.experiment import Experiment
    from finetti.probe.findings import Findings

# Those of an option that is not given: a probe that shows what this is about, in two minutes.
SPARSITY = 3
CONTEXT_LENGTHS, ONLINE_LENGTHS = "30,60", "10"
SAMPLES = "20:100:20"
TRIALS = 8
STORE, PAGE = "trials.sqlite", "probe.html"
NOT_IN_COMMAND = ("workers", "cluster", "dry_run", "as_json", "quiet", "debug", "retry_failed")


class Dropout(StrEnum):
    """Where the paper's learner drops: in three places, in the attention only, or nowhere."""

    PAPER = "paper"
    ATTENTION = "attention"
    NONE = "none"


class Ambiguous(StrEnum):
    """What becomes of samples that do not identify the hidden bits."""

    REPORT = "report"
    KEEP = "keep"
    REJECT = "reject"


def probe(
    context: typer.Context,
    function: Annotated[
        str,
        typer.Option(
            "--function",
            metavar="NAME",
            help="and, or, parity, majority, threshold:K, table, or as 'x0 & (x1 | ~x2)'.",
        ),
    ] = "and",
    sparsity: Annotated[
        int | None, typer.Option("--sparsity", min=1, help=f"Hidden bits; {SPARSITY} by default.")
    ] = None,
    context_length: Annotated[
        str | None,
        typer.Option(
            "--context-length",
            metavar="T,…",
            help=f"As 100,200 or FIRST:LAST:STEP; {CONTEXT_LENGTHS} by default.",
        ),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option("--samples", metavar="M,…", help=f"In the same way; {SAMPLES} by default."),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="For every length, sample size and learner.")
    ] = TRIALS,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help="paper, l1, tree, … or yours, module:name or ./file.py:Name; may be repeated.",
        ),
    ] = None,
    dropout: Annotated[
        Dropout | None, typer.Option("--dropout", help="Of the paper's learner.")
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="Find the critical sample size instead of a whole grid."),
    ] = False,
    level: Annotated[
        float, typer.Option("--level", help="P(success) at the critical sample size.")
    ] = 0.5,
    ambiguous: Annotated[
        Ambiguous, typer.Option("--ambiguous", help="Samples that several hidden sets explain.")
    ] = Ambiguous.REPORT,
    noise: Annotated[
        float, typer.Option("--noise", help="Probability that a training label is flipped.")
    ] = 0.0,
    bit_probability: Annotated[
        float, typer.Option("--bit-probability", help="Probability that a bit is 1.")
    ] = 0.5,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Steps; the learner's own by default.")
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Fresh samples at every step, and training curves.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Samples of a step, with --online.")
    ] = 2048,
    trace: Annotated[
        bool, typer.Option("--trace", help="Keep the training curves, and show them.")
    ] = False,
    workers: Workers = None,
    cluster: Cluster = None,
    seed: Seed = 0,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The page, the results and the trials.")
    ] = Path("probe"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the trials, estimate the time.")
    ] = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how many samples a learner needs to find a sparse hidden rule.

    Without options: a small probe of the paper's Transformer, in about two minutes.
    Exit code 0 if every trial ran. Run the same command again to go on after an interruption.
    """
    interrupted, failed = False, 0
    with resumable():
        experiment = _experiment(context.params)
        from finetti.report import check_directory
        from finetti.studies.executors.local import choose_executor

        choose_executor("local", workers, cluster)
        studies = experiment.studies()
        with private_stdout():
            for study in studies.values():
                _ = study.plan  # all that a learner may refuse is said before anything long begins
        if dry_run or not quiet:
            _say_how_long(experiment, workers or 1, dry_run, as_json)
        if dry_run:
            return
        check_directory(out)
        for study in studies.values():
            if not quiet:
                say_what_is_stored(study)
            executor = choose_executor("local", workers, cluster)
            summary = run_study(study, executor, retry_failed=retry_failed, quiet=quiet)
            failed += summary.failed
            interrupted = summary.interrupted
            if interrupted:
                break
    findings = _find(experiment, level)
    document = _document(findings, _command(context), interrupted)
    _write(findings, document, out)
    people = make_console(stderr=as_json)
    if as_json:
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    _show(findings, people, quiet)
    if failed and not quiet:
        for study in studies.values():
            show_failures(study, experiment.store, people)
    people.print(_last_words(document, out), soft_wrap=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if failed else 0)


def _say_how_long(experiment: "Experiment", workers: int, dry_run: bool, as_json: bool) -> None:
    """Before anything long begins; on stderr unless nothing else is asked for."""
    from finetti.probe.duration import estimate_duration

    with private_stdout():
        found = estimate_duration(experiment, workers)
    if dry_run and as_json:
        typer.echo(json.dumps(vars(found), indent=1))
    else:
        typer.echo(found.text, err=not dry_run)


def _find(experiment: "Experiment", level: float) -> "Findings":
    from finetti.probe.findings import Findings

    with private_stdout():
        return Findings(experiment, experiment.table(details=True), level)


def _document(findings: "Findings", command: str, interrupted: bool) -> dict[str, Any]:
    """All that is known, as plain data."""
    from finetti.core.provenance import software

    trials = findings.trials
    machine = {
        name: sorted({str(each) for each in trials[name].dropna()}) if len(trials) else []
        for name in ("device", "commit")
    }
    return {
        **findings.to_dict(),
        "interrupted": interrupted,
        "command": command,
        "seconds": round(float(trials["seconds"].sum()), 3) if len(trials) else 0.0,
        "finished": trials["finished"].max().isoformat() if len(trials) else None,
        "provenance": {**software(), **machine},
    }


def _write(findings: "Findings", document: dict[str, Any], out: Path) -> None:
    from finetti.core.files import write_file
    from finetti.probe.page import probe_page
    from finetti.report import write_results

    write_results(document, out)
    write_file(probe_page(findings, document).render().encode(), out / PAGE)


def _show(findings: "Findings", people: Any, quiet: bool) -> None:
    from finetti.show.terminal import renderable_table

    people.print(findings.headline, style="bold", soft_wrap=True)
    if quiet:
        return
    people.print()
    for table in findings.tables():
        people.print(renderable_table(table))
    for note in findings.notes:
        people.print(note, style="italic", soft_wrap=True)


def _last_words(document: dict[str, Any], out: Path) -> Any:
    from rich.text import Text

    counts = document["trials"]
    text = f"{counts['done']} of {counts['all']} trials done"
    text += f", {counts['failed']} failed" if counts["failed"] else ""
    left = counts["all"] - counts["done"] - counts["failed"]
    if document["interrupted"]:
        text += f". Stopped with {left} left: run the same command again to continue"
    text += f". Page: {out / PAGE} · trials: {out / STORE}"
    return Text(text, style="bold green" if counts["done"] == counts["all"] else "bold red")


def _command(context: typer.Context) -> str:
    """What makes this page again, with everything that was left to its default.

    >>> import click
    >>> shlex.join(["finetti", "probe", "--function", "x0 & x1"])
    "finetti probe --function 'x0 & x1'"
    """
    words = ["finetti", "probe"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in NOT_IN_COMMAND or value in (None, False):
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0]] if each is True else [parameter.opts[0], str(each)]
    return shlex.join(words)


def _experiment(given: dict[str, Any]) -> "Experiment":
    """The probe that the options ask for; what cannot be is refused here, by option."""
    from finetti.probe.experiment import Experiment

    online, learners = given["online"], tuple(given["learner"] or ("paper",))
    if not 0 < given["level"] < 1:
        raise InputError(f"--level must lie between 0 and 1. Got {given['level']:g} instead.")
    if online and (given["samples"] or given["search"]):
        wrong = "--samples" if given["samples"] else "--search"
        raise InputError(
            f"{wrong} has no meaning with --online, where every step has fresh samples: "
            "leave it out, and say how many they are with --batch-size."
        )
    if given["dropout"] and "paper" not in learners:
        raise InputError("--dropout is that of the learner `paper`. Add --learner paper.")
    lengths = given["context_length"] or (ONLINE_LENGTHS if online else CONTEXT_LENGTHS)
    fixed: dict[str, Any] = {
        "bit_probability": given["bit_probability"],
        "label_noise": given["noise"],
        "ambiguous": str(given["ambiguous"]),
    }
    if given["iterations"]:
        fixed["iterations"] = given["iterations"]
    if online:
        fixed |= {"online": True, "batch_size": given["batch_size"]}
    if online or given["trace"]:
        fixed["trace"] = ["loss", "accuracy"]
    context_lengths = whole_numbers(lengths, "--context-length")
    return Experiment(
        function=given["function"],
        sparsity=_sparsity(given["function"], given["sparsity"], min(context_lengths)),
        context_lengths=tuple(context_lengths),
        n_samples=() if online else tuple(whole_numbers(given["samples"] or SAMPLES, "--samples")),
        trials=given["trials"],
        store=given["out"] / STORE,
        learners=learners,
        options={"paper": {"dropout": str(given["dropout"])}} if given["dropout"] else {},
        fixed=fixed,
        seed=given["seed"],
    )


def _sparsity(function: str, given: int | None, shortest: int) -> int:
    """The number of hidden bits, which an expression or a truth table says itself."""
    from finetti.probe.tasks import make_rule

    if given is not None and given > shortest:
        raise InputError(
            f"--sparsity {given} hides more bits than the {shortest} of --context-length. "
            "Make one smaller or the other larger."
        )
    try:
        return make_rule(function, given, 10**6).sparsity
    except InputError as error:
        if error.argument != "sparsity" or given is not None:
            raise
        return SPARSITY
