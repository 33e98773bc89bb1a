"""``finetti probe``: how many samples a learner needs to find a hidden rule."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
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
    from finetti.probe.search.driver import SearchReport

# Those of an option that is not given: a probe that shows what this is about, in two minutes.
SPARSITY = 3
CONTEXT_LENGTHS, ONLINE_LENGTHS = "30,60", "10"
SAMPLES, SEARCHED_SAMPLES = "20,40,60,80,100", "10,1000"
TRIALS, SEARCH_TRIALS = 6, 100
STORE, PAGE = "trials.sqlite", "probe.html"
BATCH_SIZE = 2048
# Names in Python, and at the command line.
OPTIONS = {
    "name": "--function",
    "learners": "--learner",
    "n_samples": "--samples",
    "label_noise": "--noise",
    "function": "--function",
    "sparsity": "--sparsity",
    "context_length": "--context-length",
    "learner": "--learner",
    "bit_probability": "--bit-probability",
    "iterations": "--iterations",
    "online": "--online",
    "success_accuracy": "--success-accuracy",
}
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
        int | None,
        typer.Option(
            "--trials",
            min=1,
            help=f"Per length, sample size and learner, {TRIALS} by default; with --search the "
            f"most per length and learner, {SEARCH_TRIALS} by default.",
        ),
    ] = None,
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
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="A setting of the learner, or of one, LEARNER.NAME=VALUE; may be repeated.",
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="Find the critical sample size instead of a whole grid."),
    ] = False,
    level: Annotated[
        float, typer.Option("--level", help="P(success) at the critical sample size.")
    ] = 0.5,
    success_accuracy: Annotated[
        float,
        typer.Option("--success-accuracy", help="A trial succeeds with more, on fresh samples."),
    ] = 0.99,
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
        int | None,
        typer.Option("--batch-size", min=1, help="Samples of a step, with --online; 2048."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Keep the training curves, and show them.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Processes here; one per core by default."),
    ] = None,
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

    Without options: a small probe of the paper's Transformer without dropout, within two minutes.
    Exit code 0 if every trial ran. Run the same command again to go on after an interruption.
    """
    with resumable(), _options_named():
        given = _completed(context.params)
        experiment = _experiment(given)
        from finetti.report import check_directory
        from finetti.studies.executors.local import choose_executor
        from finetti.studies.limits import usable_cores

        if cluster is None and workers is None:
            # A trial is small: two of them on one core each end sooner than one after another.
            workers = usable_cores()
        choose_executor("local", workers, cluster)
        with private_stdout():
            for study in experiment.studies().values():
                _ = study.plan  # all that a learner may refuse is said before anything long begins
        if dry_run or not quiet:
            _say_how_long(experiment, workers or 1, search, dry_run, as_json)
        if dry_run:
            return
        check_directory(out)
        options = {"workers": workers, "cluster": cluster, "quiet": quiet}
        options |= {"retry_failed": retry_failed}
        searches, interrupted = None, False
        tried = experiment
        if search:
            searches, interrupted = _search(experiment, level, options)
            tried = experiment.as_tried()
        else:
            interrupted = _run(experiment, options)
    findings = _find(experiment, tried, level, searches)
    document = _document(findings, _command(context, given), interrupted)
    _write(findings, document, out)
    people = make_console(stderr=as_json)
    if as_json:
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    _show(findings, people, quiet)
    failed = document["trials"]["failed"]
    if failed and not quiet:
        for study in tried.studies().values():
            show_failures(study, Path(experiment.store), people)
    people.print(_last_words(document, out), soft_wrap=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if failed else 0)


@contextmanager
def _options_named() -> Iterator[None]:
    """Errors name arguments and parameters as the command line does."""
    try:
        yield
    except InputError as error:
        text = f"`{error.argument}` {error.problem}" if error.argument in OPTIONS else str(error)
        for name, option in OPTIONS.items():
            for written in (f"`{name}`", f"`fixed.{name}`", f"`grid.{name}`"):
                text = text.replace(written, option)
        raise InputError(text) from error


def _run(experiment: "Experiment", options: dict[str, Any]) -> bool:
    """Run what is left of the grid, learner by learner; whether it was interrupted."""
    from finetti.studies.executors.held import hold
    from finetti.studies.executors.local import choose_executor

    where = {name: options.pop(name) for name in ("workers", "cluster")}
    # The processes, and what they have compiled, stay from one learner to the next.
    with hold(choose_executor("local", **where)) as executor:
        for study in experiment.studies().values():
            if not options["quiet"]:
                say_what_is_stored(study)
            if run_study(study, executor, **options).interrupted:
                return True
    return False


def _search(
    experiment: "Experiment", level: float, options: dict[str, Any]
) -> "tuple[dict[str, SearchReport], bool]":
    """Search learner by learner: what each found, also if interrupted on the way."""
    from finetti.studies.interruption import ignore_interruptions
    from finetti.studies.status import StudyInterrupted

    found: dict[str, SearchReport] = {}
    for learner in experiment.learners:

        def note(report: "SearchReport", learner: str = learner) -> None:
            found[learner] = report
            if not options["quiet"]:
                told = (f"T = {T}: {each.size.text}" for T, each in report.results.items())
                typer.echo(f"{learner}, round {report.rounds}: {'; '.join(told)}", err=True)

        try:
            with private_stdout():
                found[learner] = experiment.search(learner, level, options, note)
        except StudyInterrupted:
            ignore_interruptions()  # what is left to do is to say so
            return found, True
    return found, False


def _say_how_long(
    experiment: "Experiment", workers: int, search: bool, dry_run: bool, as_json: bool
) -> None:
    """Before anything long begins; on stderr unless nothing else is asked for."""
    from finetti.probe.duration import estimate_duration, likely_grid

    with private_stdout():
        found = estimate_duration(likely_grid(experiment) if search else experiment, workers)
    if dry_run and as_json:
        typer.echo(json.dumps(vars(found), indent=1))
        return
    text = f"A search that ends earlier, or: {found.text}" if search else found.text
    typer.echo(text, err=not dry_run)


def _find(
    experiment: "Experiment",
    tried: "Experiment",
    level: float,
    searches: "dict[str, SearchReport] | None",
) -> "Findings":
    from finetti.probe.findings import Findings

    with private_stdout():
        return Findings(experiment, tried.table(details=True), level, searches)


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
        "seconds": round(sum(map(float, trials["seconds"])), 3) if len(trials) else 0.0,
        "finished": trials["finished"].max().isoformat() if len(trials) else None,
        "provenance": {**software(), **machine},
    }


def _write(findings: "Findings", document: dict[str, Any], out: Path) -> None:
    from finetti.core.files import write_file
    from finetti.probe.page import probe_page
    from finetti.report import write_results

    write_results(document, out)
    page = probe_page(findings, document)
    write_file(page.render().encode(), out / PAGE)
    for figure in (each for section in page.sections for each in section.figures):
        figure.chart.save(out / f"{figure.name}.svg")


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
        stopped = f"with {left} left" if left else "before it was found"
        text += f". Stopped {stopped}: run the same command again to continue"
    text += f". Page: {out / PAGE} · trials: {out / STORE}"
    return Text(text, style="bold green" if counts["done"] == counts["all"] else "bold red")


def _command(context: typer.Context, given: dict[str, Any]) -> str:
    """What makes this page again, with everything that was left to its default."""
    words = ["finetti", "probe"]
    for parameter in context.command.params:
        value = given.get(parameter.name or "")
        if parameter.name in NOT_IN_COMMAND or value is None or value is False:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0]] if each is True else [parameter.opts[0], str(each)]
    return shlex.join(words)


def _completed(options: dict[str, Any]) -> dict[str, Any]:
    """The options, and what takes the place of those that were not given."""
    online, search = options["online"], options["search"]
    defaults = {
        "context_length": ONLINE_LENGTHS if online else CONTEXT_LENGTHS,
        "samples": None if online else SEARCHED_SAMPLES if search else SAMPLES,
        "trials": SEARCH_TRIALS if search else TRIALS,
        "learner": ["paper"],
    }
    if online and (options["samples"] or search):
        wrong = "--samples" if options["samples"] else "--search"
        raise InputError(
            f"{wrong} has no meaning with --online, where every step has fresh samples: "
            "leave it out, and say how many they are with --batch-size."
        )
    given = {**options, **{name: options[name] or value for name, value in defaults.items()}}
    shortest = min(whole_numbers(given["context_length"], "--context-length"))
    given["sparsity"] = _sparsity(given["function"], given["sparsity"], shortest)
    if given["batch_size"] and not online:
        raise InputError("--batch-size is that of --online, where every step has fresh samples.")
    given["batch_size"] = given["batch_size"] or (BATCH_SIZE if online else None)
    asked = ("sparsity", "context_length", "samples", "learner", "dropout", "online", "search")
    if given["function"] == "and" and not any(options[name] for name in asked):
        given["dropout"] = Dropout.NONE  # the small probe: four times as fast
    return given


def _experiment(given: dict[str, Any]) -> "Experiment":
    """The probe that the options ask for; what cannot be is refused here, by option."""
    from finetti.probe.experiment import Experiment

    online, learners = given["online"], tuple(given["learner"])
    if not 0 < given["level"] < 1:
        raise InputError(f"--level must lie between 0 and 1. Got {given['level']:g} instead.")
    if given["dropout"] and "paper" not in learners:
        raise InputError("--dropout is that of the learner `paper`. Add --learner paper.")
    fixed: dict[str, Any] = {
        "bit_probability": given["bit_probability"],
        "label_noise": given["noise"],
        "ambiguous": str(given["ambiguous"]),
        "success_accuracy": given["success_accuracy"],
    }
    if given["iterations"]:
        fixed["iterations"] = given["iterations"]
    if online:
        fixed |= {"online": True, "batch_size": given["batch_size"]}
    if online or given["trace"]:
        fixed["trace"] = ["loss", "accuracy"]
    n_samples = () if online else tuple(whole_numbers(given["samples"], "--samples"))
    if given["search"] and len(n_samples) != 2:
        raise InputError(
            "--search looks between two sample sizes. Give both, for example --samples 10,1000."
        )
    return Experiment(
        function=given["function"],
        sparsity=given["sparsity"],
        context_lengths=tuple(whole_numbers(given["context_length"], "--context-length")),
        n_samples=n_samples,
        trials=given["trials"],
        store=given["out"] / STORE,
        learners=learners,
        options=_options(given["option"] or [], given["dropout"], learners),
        fixed=fixed,
        seed=given["seed"],
    )


def _options(
    texts: list[str], dropout: Dropout | None, learners: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Settings by learner.

    >>> _options(["width=32", "l1.n_folds=3"], Dropout.NONE, ("paper", "l1"))
    Traceback (most recent call last):
    finetti.core.errors.InputError: --option width=32 must name its learner: paper.width=32 or \
l1.width=32.
    >>> _options(["paper.width=32", "l1.n_folds=3"], Dropout.NONE, ("paper", "l1"))
    {'paper': {'dropout': 'none', 'width': 32}, 'l1': {'n_folds': 3}}
    """
    found: dict[str, dict[str, Any]] = {}
    if dropout is not None:
        found["paper"] = {"dropout": str(dropout)}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--option {text} cannot be read. Write NAME=VALUE, as width=32.")
        owners = [each for each in learners if name.startswith(f"{each}.")] or [*learners]
        if len(owners) > 1:
            choices = " or ".join(f"{each}.{text}" for each in learners)
            raise InputError(f"--option {text} must name its learner: {choices}.")
        setting = name.removeprefix(f"{owners[0]}.")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value  # a word
        found.setdefault(owners[0], {})[setting] = parsed
    return found


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
