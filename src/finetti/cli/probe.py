"""``finetti probe``: how many samples a learner needs to find a hidden rule."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from finetti.cli.console import make_console, say
from finetti.cli.options import INTERRUPTED, Debug, Json, Quiet, Seed, options_named
from finetti.cli.probe_options import (
    OPTIONS,
    STORE,
    Ambiguous,
    AmbiguousSets,
    BatchSize,
    BitProbability,
    ContextLengths,
    DropoutPreset,
    DryRun,
    Function,
    Iterations,
    LearnerNames,
    Level,
    Noise,
    Online,
    Out,
    ProbeWorkers,
    SampleSizes,
    Search,
    Settings,
    Sparsity,
    SuccessAccuracy,
    Trace,
    TrialCount,
    completed,
    make_experiment,
)
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
    say_what_is_stored,
    show_failures,
)

if TYPE_CHECKING:
    from finetti.probe.experiment import Experiment
    from finetti.probe.findings import Findings
    from finetti.probe.search.driver import SearchReport

PAGE = "probe.html"


def probe(
    context: typer.Context,
    function: Function = "and",
    sparsity: Sparsity = None,
    context_length: ContextLengths = None,
    samples: SampleSizes = None,
    trials: TrialCount = None,
    learner: LearnerNames = None,
    dropout: DropoutPreset = None,
    option: Settings = None,
    search: Search = False,
    level: Level = 0.5,
    success_accuracy: SuccessAccuracy = 0.99,
    ambiguous: AmbiguousSets = Ambiguous.REPORT,
    noise: Noise = 0.0,
    bit_probability: BitProbability = 0.5,
    iterations: Iterations = None,
    online: Online = False,
    batch_size: BatchSize = None,
    trace: Trace = False,
    workers: ProbeWorkers = None,
    cluster: Cluster = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    out: Out = Path("probe"),
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how many samples a learner needs to find a sparse hidden rule.

    Without options, runs a small probe of the paper's Transformer without dropout, within two
    minutes. Exits with 0 if every trial ran. Rerun the same command to resume an interrupted run.
    """
    with resumable(), options_named(OPTIONS):
        given = completed(context.params)
        experiment = make_experiment(given)
        from finetti.core.files import check_directory
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
    command = command_line(context, "probe", given)
    document = run_document(findings.to_dict(), findings.trials, command, interrupted)
    from finetti.probe.page import probe_page

    write_page(probe_page(findings, document), document, out, PAGE)
    people = make_console(stderr=as_json)
    if as_json:
        say(json.dumps(document, indent=1, allow_nan=False))
    show_findings(findings, people, quiet)
    failed = document["trials"]["failed"]
    if failed and not quiet:
        for study in tried.studies().values():
            show_failures(study, Path(experiment.store), people)
    people.print(last_words(document, out / PAGE, out / STORE), soft_wrap=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if failed else 0)


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
                say(f"{learner}, round {report.rounds}: {'; '.join(told)}", err=True)

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
        say(json.dumps(vars(found), indent=1))
        return
    text = f"Unless the search ends earlier: {found.text}" if search else found.text
    say(text, err=not dry_run)


def _find(
    experiment: "Experiment",
    tried: "Experiment",
    level: float,
    searches: "dict[str, SearchReport] | None",
) -> "Findings":
    from finetti.probe.findings import Findings

    with private_stdout():
        return Findings(experiment, tried.table(details=True), level, searches)
