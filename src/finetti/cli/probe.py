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
    say_how_long,
    say_what_is_stored,
    show_failures,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from finetti.probe.experiment import Experiment
    from finetti.probe.findings import Findings
    from finetti.probe.search.search_rounds import SearchReport
    from finetti.studies.coordinator import StudyPlan
    from finetti.studies.executors.executor import Executor
    from finetti.studies.study import Study

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
        from finetti.studies.executors.local_executor import open_executor
        from finetti.studies.executors.resource_limits import usable_cores

        if cluster is None and workers is None:
            # A trial is small: two of them on one core each end sooner than one after another.
            workers = usable_cores()
        with open_executor("local", workers, cluster) as executor:
            with private_stdout():
                studies = experiment.studies()
                # All that a learner may refuse is said before anything long begins.
                plans = {learner: study.plan for learner, study in studies.items()}
            if dry_run or not quiet:
                _say_how_long(studies, plans, workers or 1, search, dry_run, as_json)
            if dry_run:
                return
            check_directory(out)
            options = {"quiet": quiet, "retry_failed": retry_failed}
            searches, interrupted = None, False
            tried = experiment
            if search:
                searches, interrupted = _search(
                    experiment, level, {"executor": executor, **options}
                )
                tried = experiment.as_tried()
                studies, plans = tried.studies(), {}
            else:
                # The processes, and what they have compiled, stay from one learner to the next.
                interrupted = _run(studies, plans, executor, options)
    with private_stdout():
        plans = plans or {learner: study.plan for learner, study in studies.items()}
    findings = _find(experiment, tried.table(details=True, plans=plans), level, searches)
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
        for name, study in studies.items():
            show_failures(study, plans[name], Path(experiment.store), people)
    people.print(last_words(document, out / PAGE, out / STORE), soft_wrap=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if failed else 0)


def _run(
    studies: "Mapping[str, Study]",
    plans: "Mapping[str, StudyPlan]",
    executor: "Executor",
    options: dict[str, Any],
) -> bool:
    """Run what is left of the grid, learner by learner; whether it was interrupted."""
    for learner, study in studies.items():
        if not options["quiet"]:
            say_what_is_stored(study, plans[learner])
        if run_study(study, executor, plan=plans[learner], **options).interrupted:
            return True
    return False


def _search(
    experiment: "Experiment", level: float, options: dict[str, Any]
) -> "tuple[dict[str, SearchReport], bool]":
    """Search learner by learner: what each found, also if interrupted on the way."""
    from finetti.studies.interruption import ignore_interruptions
    from finetti.studies.study_status import StudyInterrupted

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
    studies: "Mapping[str, Study]",
    plans: "Mapping[str, StudyPlan]",
    workers: int,
    search: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Before anything long begins."""
    found = [each.estimate(workers=workers, plan=plans[name]) for name, each in studies.items()]
    before = "Unless the search ends earlier: " if search else ""
    say_how_long(found, dry_run, as_json, before)


def _find(
    experiment: "Experiment",
    table: Any,
    level: float,
    searches: "dict[str, SearchReport] | None",
) -> "Findings":
    from finetti.probe.findings import Findings

    with private_stdout():
        return Findings(experiment, table, level, searches)
