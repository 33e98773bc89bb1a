"""``finetti risk``: the excess risk of a trained network, taken apart."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from finetti.cli.console import make_console, say
from finetti.cli.options import INTERRUPTED, Debug, Json, Quiet, Seed, options_named, whole_numbers
from finetti.cli.run_pages import (
    command_line,
    last_words,
    run_document,
    show_findings,
    write_page,
)
from finetti.cli.studies import (
    Cluster,
    MemoryLimit,
    RetryFailed,
    TimeLimit,
    private_stdout,
    resumable,
    run_study,
    say_how_long,
    say_what_is_stored,
    show_failures,
)
from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.risk.experiment import RiskExperiment
    from finetti.risk.findings import RiskFindings

SAMPLES, TRIALS = "50,200,800", 2
STORE, PAGE = "trials.sqlite", "risk.html"
# Names in Python, and at the command line.
OPTIONS = {
    "world": "--world",
    "world_options": "--option",
    "network": "--network",
    "n_samples": "--samples",
    "context_length": "--context-length",
    "restarts": "--restarts",
    "iterations": "--iterations",
    "learning_rate": "--learning-rate",
    "class_samples": "--class-samples",
    "test_samples": "--test-samples",
}


def risk(
    context: typer.Context,
    world: Annotated[
        str,
        typer.Option(
            "--world",
            metavar="NAME",
            help="World whose best answer is known: beta-bernoulli, finite-atoms, linear-gaussian, "
            "gaussian-process, sphere, or instrumental.",
        ),
    ] = "linear-gaussian",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Setting of the world. Repeatable."),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            "--network",
            metavar="NAME",
            help="Network to train: attention, limited-attention, conditional-mean, or your own as "
            "module:name or ./file.py:name.",
        ),
    ] = "attention",
    samples: Annotated[
        str,
        typer.Option(
            "--samples", metavar="N,…", help="Sample sizes, as 100,1000 or FIRST:LAST:STEP."
        ),
    ] = SAMPLES,
    context_length: Annotated[
        int, typer.Option("--context-length", min=1, help="Tokens per sequence.")
    ] = 8,
    restarts: Annotated[
        int, typer.Option("--restarts", min=1, help="Random starts for the minima over the class.")
    ] = 2,
    iterations: Annotated[int, typer.Option("--iterations", min=1, help="Training steps.")] = 300,
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", help="Initial learning rate.")
    ] = 0.02,
    class_samples: Annotated[
        int | None,
        typer.Option(
            "--class-samples",
            min=1,
            help="Sequences for finding the best of the class; max(4n, 4096) by default.",
        ),
    ] = None,
    test_samples: Annotated[
        int, typer.Option("--test-samples", min=2, help="Sequences for estimating expectations.")
    ] = 4000,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Trials per sample size.")
    ] = TRIALS,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="Number of worker processes; one per core by default."
        ),
    ] = None,
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Directory for the HTML page, results, and trials."
        ),
    ] = Path("risk"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the trials and estimate the time.")
    ] = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a network where the best answer is known, and decompose its excess risk.

    Shows generalization, approximation, and optimization error against the number of sequences,
    with error bars and the bound of Theorem 5.3. Without options, runs a small study within two
    minutes. Exits with 0 if every trial ran. Rerun the same command to resume an interrupted run.
    """
    with resumable(), options_named(OPTIONS):
        given = dict(context.params)
        experiment = _experiment(given)
        from finetti.core.files import check_directory
        from finetti.studies.executors.local_executor import open_executor
        from finetti.studies.executors.resource_limits import usable_cores

        if cluster is None and workers is None:
            workers = usable_cores()
        with open_executor("local", workers, cluster) as executor:
            with private_stdout():
                study = experiment.study()
                plan = study.plan  # all that is refused is said before anything long begins
            if dry_run or not quiet:
                say_how_long([study.estimate(workers=workers or 1, plan=plan)], dry_run, as_json)
            if dry_run:
                return
            check_directory(out)
            if not quiet:
                say_what_is_stored(study, plan)
            options = {"quiet": quiet, "retry_failed": retry_failed, "plan": plan}
            summary = run_study(study, executor, **options)
    findings = _find(experiment, study.table(details=True, plan=plan))
    command = command_line(context, "risk", given)
    document = run_document(findings.to_dict(), findings.trials, command, summary.interrupted)
    from finetti.risk.page import risk_page

    write_page(risk_page(findings, document), document, out, PAGE)
    people = make_console(stderr=as_json)
    if as_json:
        say(json.dumps(document, indent=1, allow_nan=False))
    show_findings(findings, people, quiet)
    if summary.failed and not quiet:
        show_failures(study, plan, out / STORE, people)
    people.print(last_words(document, out / PAGE, out / STORE), soft_wrap=True)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if summary.failed else 0)


def _experiment(given: dict[str, Any]) -> "RiskExperiment":
    """The study that the options ask for."""
    sizes = tuple(whole_numbers(given["samples"], "--samples"))
    if not given["learning_rate"] > 0:
        got = f"{given['learning_rate']:g}"
        raise InputError(f"--learning-rate must be a number > 0. Got {got} instead.")
    with private_stdout():
        from finetti.risk.experiment import RiskExperiment

    names = "world network context_length restarts iterations learning_rate test_samples"
    fixed = {name: given[name] for name in names.split()}
    if given["class_samples"] is not None:
        fixed["class_samples"] = given["class_samples"]
    if given["option"]:
        fixed["world_options"] = _world_options(given["option"])
    limits = {name: given[name] for name in ("time_limit", "memory_limit")}
    place = given["out"] / STORE
    return RiskExperiment(sizes, given["trials"], place, fixed, given["seed"], **limits)


def _world_options(texts: list[str]) -> dict[str, Any]:
    """Settings from NAME=VALUE; values are numbers, lists or words."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (sign and name.isidentifier()):
            raise InputError(f"--option {text} cannot be read. Write NAME=VALUE.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # a word
    return found


def _find(experiment: "RiskExperiment", table: Any) -> "RiskFindings":
    from finetti.risk.findings import RiskFindings

    with private_stdout():
        return RiskFindings(experiment, table)
